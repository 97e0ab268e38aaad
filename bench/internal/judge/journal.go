package judge

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

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A Journal is the file in which the handlers of this process write down what they do. Each record is in it before
// the handler goes on, so kill -9 takes none of them away. It is safe for concurrent use.
type Journal struct {
	file *os.File
	runs atomic.Int64
}

// Open makes the file, or appends to it.
func Open(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Journal{file: file}, err
}

// step is how long a handler works between two looks at its context.
const step = 20 * time.Millisecond

// Work is the handler of a task: it works step by step. It stops early, with an error, when ctx ends. For charged and fence
// see [Record].
func (j *Journal) Work(ctx context.Context, task, charged int, fence int64, work time.Duration) error {
	r := Record{Process: os.Getpid(), Run: int(j.runs.Add(1)), Task: task, Charged: charged, Fence: fence}
	if err := j.write(r, Start); err != nil {
		return err
	}
	for left := work; left > 0; left -= step {
		if err := sleep.For(ctx, min(step, left)); err != nil {
			return errors.Join(err, j.write(r, Abort))
		}
	}
	return j.write(r, End)
}

func (j *Journal) write(r Record, kind Kind) error {
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
func Read(path string) (all []Record, err error) {
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
		var r Record
		if err := json.NewDecoder(strings.NewReader(line)).Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w in %q", path, err, line)
		}
		all = append(all, r)
	}
}
