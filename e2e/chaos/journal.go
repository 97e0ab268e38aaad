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

// A Journal is the file to which one process writes its runs, and which tasks it put
// back: each line with one system call, so that a process that is killed loses at most
// the end of a run.
//
//	B <run> <time> <fence> <task> <resource or -> the handler began
//	L <run> <time>                                its context ended
//	R <run> <time> <outcome>                      it returned
//	P 0 <time> <task>                             the task was put back
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

// PutBack writes down that a task was put back whose worker had died or been cut off.
func (j *Journal) PutBack(task string) { j.write("P 0 %d %s\n", Now(), task) }

// write panics when the file cannot be written: without it nothing can be checked.
func (j *Journal) write(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintf(j.file, format, args...); err != nil {
		panic("chaos: journal: " + err.Error())
	}
}

// ReadJournal adds what the process wrote into the file.
func (h *History) ReadJournal(path, process string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	j := journaled{process: process}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if err := j.add(lines.Text()); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	h.Runs, h.PutBack = append(h.Runs, j.runs...), append(h.PutBack, j.putBack...)
	return lines.Err()
}

// journaled is what the lines of a journal say.
type journaled struct {
	process string
	runs    []Run // run n is at index n-1
	putBack []PutBack
}

// add adds what a line says.
func (j *journaled) add(line string) error {
	var (
		kind string
		run  int
		at   time.Duration
	)
	if _, err := fmt.Sscan(line, &kind, &run, &at); err != nil {
		// Sscan reads a Duration as the integer that it is.
		return fmt.Errorf("want a kind, a run and a time, have %q", line)
	}
	rest := strings.Fields(line)[3:]
	switch {
	case kind == "P" && run == 0 && len(rest) == 1:
		j.putBack = append(j.putBack, PutBack{Task: rest[0], At: at})
	case kind == "B" && run > 0 && len(rest) == 3:
		r := j.run(run)
		r.Begin, r.Task, r.Resource = at, rest[1], rest[2]
		if r.Resource == "-" {
			r.Resource = ""
		}
		if _, err := fmt.Sscan(rest[0], &r.Fence); err != nil {
			return fmt.Errorf("fence in %q: %w", line, err)
		}
	case kind == "L" && run > 0 && len(rest) == 0:
		j.run(run).Lost = at
	case kind == "R" && run > 0 && len(rest) == 1:
		r := j.run(run)
		r.Returned, r.Outcome = at, Outcome(rest[0])
	default:
		return fmt.Errorf("want a line of a journal, have %q", line)
	}
	return nil
}

// run returns run n. As runs begin side by side, its place may be filled later.
func (j *journaled) run(n int) *Run {
	for len(j.runs) < n {
		j.runs = append(j.runs, Run{Process: j.process})
	}
	return &j.runs[n-1]
}
