package chaos

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Journal is the file to which one process writes its runs: each line with one
// system call, so that a process that is killed loses at most the end of a run.
//
//	B <run> <time> <fence> <task> <resource or -> the handler began
//	L <run> <time>                                its context ended
//	R <run> <time> <outcome>                      it returned
type Journal struct {
	mu   sync.Mutex
	file *os.File
	runs atomic.Int64
}

// OpenJournal creates the file.
func OpenJournal(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Journal{file: file}, nil
}

// Begin writes down that a run of a task began.
func (j *Journal) Begin(task, resource string, fence int64) (run int64) {
	run = j.runs.Add(1)
	if resource == "" {
		resource = "-"
	}
	j.write("B %d %d %d %s %s\n", run, Now(), fence, task, resource)
	return run
}

// Lost writes down that the context of a run ended.
func (j *Journal) Lost(run int64) { j.write("L %d %d\n", run, Now()) }

// Returned writes down that a run ended.
func (j *Journal) Returned(run int64, o Outcome) { j.write("R %d %d %s\n", run, Now(), o) }

// write panics when the file cannot be written: without it nothing can be checked.
func (j *Journal) write(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintf(j.file, format, args...); err != nil {
		panic("chaos: journal: " + err.Error())
	}
}

// ReadJournal returns the runs of the process that wrote the file.
func ReadJournal(path, process string) ([]Run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var runs []Run
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if runs, err = addLine(runs, lines.Text(), process); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return runs, lines.Err()
}

// addLine adds what a line says to the runs before it. Run n is at index n-1; as
// runs begin side by side, a place may be filled later.
func addLine(runs []Run, line, process string) ([]Run, error) {
	var (
		kind string
		run  int
		at   time.Duration
	)
	if _, err := fmt.Sscan(line, &kind, &run, &at); err != nil || run < 1 {
		// Sscan reads a Duration as the integer that it is.
		return nil, fmt.Errorf("want a kind, a run and a time, have %q", line)
	}
	for len(runs) < run {
		runs = append(runs, Run{Process: process})
	}
	r := &runs[run-1]
	rest := strings.Fields(line)[3:]
	switch {
	case kind == "B" && len(rest) == 3:
		r.Begin, r.Task, r.Resource = at, rest[1], rest[2]
		if r.Resource == "-" {
			r.Resource = ""
		}
		if _, err := fmt.Sscan(rest[0], &r.Fence); err != nil {
			return nil, fmt.Errorf("fence in %q: %w", line, err)
		}
	case kind == "L" && len(rest) == 0:
		r.Lost = at
	case kind == "R" && len(rest) == 1:
		r.Returned, r.Outcome = at, Outcome(rest[0])
	default:
		return nil, fmt.Errorf("want a line of a journal, have %q", line)
	}
	return runs, nil
}
