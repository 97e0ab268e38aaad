package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/bench/internal/program"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

// TestMain also runs the processes of contenders, and the proxies on their way to the server.
func TestMain(m *testing.M) {
	if asked() || delay.Asked() {
		os.Exit(program.Run("torture", takePart)) //nolint:forbidigo // it is the main of another program here
	}
	goleak.VerifyTestMain(m)
}

// TestRun kills workers of Siding, and wants its promise kept and the faults seen.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	var out, log strings.Builder
	keep := t.TempDir()
	args := []string{"-contenders", "siding", "-scenarios", "kill9", "-json", "-keep", keep}
	if err := run(t.Context(), args, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var have struct {
		Contender, Scenario string
		judge.Verdict
	}
	if err := json.Unmarshal([]byte(out.String()), &have); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	expect.That(t, have.Contender == "siding" && have.Scenario == "kill9", "want the verdict on siding after kill9, have %s", out.String())
	expect.That(t, have.NextOfKey > 0 && have.Rerun > 0, "want the times to the next runs of what was killed, have %s", out.String())
	if kept, err := os.ReadDir(keep + "/kill9-siding"); len(kept) != 1+fleet+2 || err != nil {
		t.Errorf("want the plan and the records of %d workers, have %v, %v", fleet+2, kept, err)
	}
}

// A broken promise is an error, but not the moment of work after a stop.
func TestBroken(t *testing.T) {
	t.Parallel()
	all := scenarios()
	judged, other := contenders()[0], contenders()[1]
	for _, tc := range []struct {
		c      contender
		s      int
		v      judge.Verdict
		broken bool
	}{
		{judged, 1, judge.Verdict{Repeated: 1, Disorder: 1}, false},
		{judged, 1, judge.Verdict{Overlaps: 1}, true},
		{judged, 2, judge.Verdict{Overlaps: 1, Late: 1, Fenced: 1}, false},
		{judged, 2, judge.Verdict{Late: 1}, true},
		{judged, 1, judge.Verdict{Lost: 1}, true},
		{judged, 1, judge.Verdict{Stuck: 1}, true},
		{judged, 1, judge.Verdict{Charged: 1}, true},
		{other, 1, judge.Verdict{Overlaps: 1, Lost: 1}, false},
	} {
		b := &bench{results: []result{{contender: tc.c, scenario: all[tc.s], verdict: tc.v}}}
		if err := b.broken(); (err != nil) != tc.broken {
			t.Errorf("%s, %s, %+v: want broken %v, have %v", tc.c.Name, all[tc.s].Name, tc.v, tc.broken, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`["more"]`:                {"more"},
		"-timeout 1s":             {"-timeout", "1s"},
		`"nobody" for flag -cont`: {"-contenders", "nobody"},
		`"nothing" for flag -sce`: {"-scenarios", "nothing"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %s, have %v", args, want, err)
		}
	}
}
