package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// The two programs of docs/guides/from-asynq.md run the tasks of a plain asynq client. On plain asynq the
// audits of one order meet. On Siding they run one after the other, and those of other orders beside them.
func TestFromAsynq(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "../examples/fromasynq/before", "../examples/fromasynq/after").CombinedOutput()
	expect.Need(t, err == nil, "build: %v\n%s", err, out)
	for program, want := range map[string]bool{"before": true, "after": false} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			const tasks = 4
			at := redistest.Start(t)
			rdb := at.Client(t)
			client := asynq.NewClientFromRedisClient(rdb)
			for _, order := range slices.Concat(slices.Repeat([]string{"1"}, tasks), slices.Repeat([]string{"2"}, tasks)) {
				expect.Value(client.Enqueue(asynq.NewTask("order:audit", []byte(`{"order":"`+order+`"}`))))(t)
			}
			s := &testbed{env: environ()}
			p := s.start(t, t.TempDir(), filepath.Join(bin, program), "-redis", at.Addr)
			expect.Eventually(t, "all tasks done", func() bool {
				info, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default")
				return err == nil && info.Processed == 2*tasks && info.Size == 0
			})
			log := p.Stderr.String()
			if have := mostAtOnce(log, "order=1"); (have > 1) != want {
				t.Errorf("audits of one order at once: want more than one: %v, have %d in %s", want, have, log)
			}
			if have := mostAtOnce(log, "audit"); have < 2 {
				t.Errorf("audits at once: want 2 or more, have %d in %s", have, log)
			}
			p.end(t, os.Interrupt)
		})
	}
}

// mostAtOnce returns how many audits were at work at one time, of those whose lines have the text.
func mostAtOnce(log, text string) (most int) {
	now := 0
	for line := range strings.Lines(log) {
		switch {
		case !strings.Contains(line, text):
		case strings.Contains(line, "audit begins"):
			now++
			most = max(most, now)
		case strings.Contains(line, "audit ends"):
			now--
		}
	}
	return most
}
