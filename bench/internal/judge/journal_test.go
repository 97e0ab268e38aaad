package judge_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A run that ends and one that is stopped are read again as they were, without the line that a
// death cut short.
func TestJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	before := proc.Now()
	j := expect.Value(judge.Open(path))(t)
	expect.OK(t, j.Work(t.Context(), 7, 2, 3, time.Millisecond))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Work(ended, 8, 0, 0, time.Hour); err == nil {
		t.Error("want an error when the context has ended")
	}
	file := expect.Value(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600))(t)
	expect.OK(t, expect.Err(file.WriteString(`{"at":1,"kind":"sta`)))
	expect.OK(t, file.Close())
	have := expect.Value(judge.Read(path))(t)
	for i := range have {
		if have[i].At < before {
			t.Errorf("want times after %v, have %v", before, have[i].At)
		}
		before, have[i].At = have[i].At, 0
	}
	pid := os.Getpid()
	want := []judge.Record{
		{Kind: judge.Start, Process: pid, Run: 1, Task: 7, Charged: 2, Fence: 3},
		{Kind: judge.End, Process: pid, Run: 1, Task: 7, Charged: 2, Fence: 3},
		{Kind: judge.Start, Process: pid, Run: 2, Task: 8},
		{Kind: judge.Abort, Process: pid, Run: 2, Task: 8},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("want -, have +\n%s", diff)
	}
}
