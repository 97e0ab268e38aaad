package compare

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// A Record has what the handlers of one way did. Its methods are safe for use by several goroutines.
type Record struct {
	mu       sync.Mutex
	began    time.Time
	started  map[string]time.Duration // when the first run of each task began, by its id
	last     time.Duration            // when the last run ended
	refusals int
	closed   bool
	running  sync.WaitGroup
}

// errClosed is the error of a run that begins after Close.
var errClosed = errors.New("the record is closed")

// NewRecord returns the record of a way that begins now.
func NewRecord() *Record {
	return &Record{began: time.Now(), started: make(map[string]time.Duration)}
}

// Run calls work and records it as a run of the task. After [Record.Close] it is an error.
func (r *Record) Run(id string, work func() error) error {
	if !r.start(id) {
		return errClosed
	}
	defer r.running.Done()
	err := work()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Since(r.began)
	return err
}

// start reports whether the task may run.
func (r *Record) start(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	if _, again := r.started[id]; !again {
		r.started[id] = time.Since(r.began)
	}
	return true
}

// Busy records that a lock was busy.
func (r *Record) Busy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals++
	r.last = time.Since(r.began)
}

// Close lets no more tasks run, and waits until none does.
func (r *Record) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

// Elapsed returns the time since the begin.
func (r *Record) Elapsed() time.Duration { return time.Since(r.began) }

// Refusals returns how often a lock was busy.
func (r *Record) Refusals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusals
}

// Took returns when the last run of a task ended, or found its lock busy, from the begin.
func (r *Record) Took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Never is the wait of a task that has not started.
const Never = time.Duration(math.MaxInt64)

// Waits returns how long each of these tasks waited from the begin to its first run, or Never.
func (r *Record) Waits(ids []string) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	waits := make([]time.Duration, len(ids))
	for i, id := range ids {
		waits[i] = Never
		if at, ok := r.started[id]; ok {
			waits[i] = at
		}
	}
	return waits
}

// Quantile returns the shortest of all that percent of them do not exceed; 0 if there are none.
func Quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}
