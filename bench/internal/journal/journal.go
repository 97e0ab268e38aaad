// Package journal keeps what the handlers of a process write down. Each record is in the file before
// the handler goes on, so kill -9 takes none of them away.
package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A Journal is the file of this process. It is safe for concurrent use.
type Journal struct {
	file *os.File
	runs atomic.Int64
}

// Open makes the file, or appends to it.
func Open(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Journal{file: file}, err
}

// A Job is what a handler is called for.
type Job struct {
	Task    int
	Charged int   // attempts that were counted against it before
	Fence   int64 // of its lease, 0 for none
	Work    time.Duration
}

// step is how long a handler works between two looks at its context.
const step = 20 * time.Millisecond

// Work is the handler: it works step by step. It stops early, with an error, when ctx ends.
func (j *Journal) Work(ctx context.Context, job Job) error {
	r := judge.Record{Process: os.Getpid(), Run: int(j.runs.Add(1)), Task: job.Task, Charged: job.Charged, Fence: job.Fence}
	if err := j.write(r, judge.Start); err != nil {
		return err
	}
	for left := job.Work; left > 0; left -= step {
		if err := sleep.For(ctx, min(step, left)); err != nil {
			return errors.Join(err, j.write(r, judge.Abort))
		}
	}
	return j.write(r, judge.End)
}

func (j *Journal) write(r judge.Record, kind judge.Kind) error {
	r.Kind, r.At = kind, proc.Now()
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// Read returns all records of a file, none if there is no file. A line that is being written is
// left out.
func Read(path string) (all []judge.Record, err error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return all, nil // the end of the file, or a line without its end
		}
		var r judge.Record
		if err := json.NewDecoder(strings.NewReader(line)).Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w in %q", path, err, line)
		}
		all = append(all, r)
	}
}
