package queue_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// Where Resources guards other kinds, the log says once of each kind that its tasks run unguarded. So
// does a kind that is misspelt there.
func TestKindsThatRunUnguardedAreLogged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		resources map[string]queue.ResourceFunc
		want      int
	}{
		"another kind is guarded": {map[string]queue.ResourceFunc{"test:jbo": resources()[job{}.Kind()]}, 1},
		"this kind is guarded":    {resources(), 0},
		"no kind is guarded":      {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := &plain{guardConfig: queue.ServerConfig{Resources: tt.resources}}
			p.start(t, b, func(context.Context, *asynq.Task) error { return nil })
			for n := range 3 {
				b.awaitGone(t, b.enqueuePlain(t, b.job(n)))
			}
			p.stop(t)
			have := p.logs.lines("a task runs unguarded", slog.LevelInfo)
			if len(have) != tt.want {
				t.Fatalf("want %d lines, have %q", tt.want, have)
			}
			for _, line := range have {
				if !strings.Contains(line, "task_kind=test:job ") || !strings.Contains(line, "guarded_kinds=[test:jbo]") {
					t.Errorf("want the kind and those that are guarded, have %q", line)
				}
			}
		})
	}
}
