package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/queue"
)

// A Journal is the file to which one process writes its runs, and which tasks it requeued or ended. Each
// line is an entry, written by one system call. So a process that is killed loses at most the end
// of a run.
type Journal struct {
	file *os.File
	runs atomic.Int32
}

// An entry says what happened to a run, or to a task without one.
type entry struct {
	// What is begin, lost (the context of the run ended), returned, requeued (the task's worker had died or been cut off),
	// or ended (the task, by its policy).
	What     string        `json:"what"`
	At       time.Duration `json:"at"`
	Run      int           `json:"run,omitempty"` // its number, from 1 on
	Task     string        `json:"task,omitempty"`
	Resource string        `json:"resource,omitempty"`
	Fence    int64         `json:"fence,omitempty"`
	Retried  int           `json:"retried,omitempty"`
	Outcome  Outcome       `json:"outcome,omitempty"`

	End   queue.EventKind `json:"end,omitempty"`
	Other string          `json:"other,omitempty"` // the task that is to run instead
}

// OpenJournal creates the file.
func OpenJournal(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	return &Journal{file: file}, err
}

// Begin writes down that a run of a task began.
func (j *Journal) Begin(task, resource string, fence int64, retried int) (run int) {
	run = int(j.runs.Add(1))
	j.write(entry{What: "begin", Run: run, Task: task, Resource: resource, Fence: fence, Retried: retried})
	return run
}

// write panics if it cannot write: without a journal nothing can be checked.
func (j *Journal) write(e entry) {
	e.At = Now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
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
	var runs []Run // run n is at index n-1
	lines := json.NewDecoder(file)
	for {
		var e entry
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for len(runs) < e.Run { // runs begin side by side, so the entries of one may come after those of the next
			runs = append(runs, Run{Process: process})
		}
		if e.What == "requeued" {
			h.Requeued = append(h.Requeued, Requeued{Task: e.Task, At: e.At})
			continue
		}
		if e.What == "ended" {
			h.Ends = append(h.Ends, End{By: e.End, Task: e.Task, Other: e.Other, Process: process, At: e.At})
			continue
		}
		switch run := &runs[e.Run-1]; e.What {
		case "begin":
			run.Begin, run.Task, run.Resource, run.Fence, run.Retried = e.At, e.Task, e.Resource, e.Fence, e.Retried
		case "lost":
			run.Lost = e.At
		case "returned":
			run.Returned, run.Outcome = e.At, e.Outcome
		}
	}
	h.Runs = append(h.Runs, runs...)
	return nil
}
