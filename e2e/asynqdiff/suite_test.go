package asynqdiff

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestMain runs many scenarios at once: they mostly wait for asynq's timers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	redis.SetLogger(silent{}) // of what crashed servers miss
	m.Run()
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// scenarios returns all of them.
func scenarios() []scenario {
	return slices.Concat(heartbeats, // which take longest, so they begin first
		outcomes, options, uniqueness, messages, ends, queues, operators, shutdowns, crashes, groups, upkeep)
}

// TestScenarios compares every subject with asynq's server in every scenario.
func TestScenarios(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			all := l.play(t, s, append([]subject{oracle}, subjects...)...)
			want := all[0]
			if testing.Verbose() {
				t.Logf("asynq:\n%s", text(want))
			}
			for i, on := range subjects {
				diff := cmp.Diff(want, all[i+1])
				if problem := judge(s, on, diff); problem != "" {
					t.Error(problem)
				} else if diff != "" {
					t.Logf("%s differs, as %s:\n%s", on, s.differs, diff)
				}
			}
		})
	}
}

// judge returns what is wrong with how a subject differs from asynq's server, "" if nothing is.
func judge(s scenario, on subject, diff string) string {
	switch {
	case on != oracle && s.differs != "" && diff == "":
		return fmt.Sprintf("%s: want a difference, as %s; have none", on, s.differs)
	case (on == oracle || s.differs == "") && diff != "":
		return fmt.Sprintf("%s: want what asynq does (-), have (+)\n%s", on, diff)
	}
	return ""
}

// play plays a scenario on subjects, one after the other. As keys and counts are by day, a play over midnight
// does not count.
func (l *lab) play(t *testing.T, s scenario, on ...subject) [][]string {
	t.Helper()
	for {
		day := today()
		var all [][]string
		for _, subject := range on {
			all = append(all, l.run(t, s, subject))
		}
		if day == today() {
			return all
		}
	}
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

func text(lines []string) string { return strings.Join(lines, "\n") }

// TestDifferences prints the table of deliberate differences for the docs.
func TestDifferences(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	var reasons []string
	cases := make(map[string][]string)
	for _, s := range scenarios() {
		expect.That(t, !names[s.name], "two scenarios %q", s.name)
		names[s.name] = true
		expect.That(t, !strings.ContainsAny(s.differs, "|\n"), "%s: want one line without |, have %q", s.name, s.differs)
		if s.differs != "" {
			if cases[s.differs] == nil {
				reasons = append(reasons, s.differs)
			}
			cases[s.differs] = append(cases[s.differs], s.name)
		}
	}
	table := []string{"| difference | where |", "|---|---|"}
	for _, reason := range reasons {
		table = append(table, fmt.Sprintf("| %s | %s |", reason, strings.Join(cases[reason], "; ")))
	}
	t.Logf("%d scenarios, these with a difference:\n%s", len(names), text(table))
}
