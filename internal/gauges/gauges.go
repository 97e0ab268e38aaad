// Package gauges sums up the state of a whole fleet for metrics: its locks by class, its tasks by queue,
// and its servers.
package gauges

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/labels"
)

// limit bounds the reading, and so the time for which a scrape waits.
const limit = 2 * time.Second

// A Reader reads the state of the whole fleet. An [inspect.Inspector] is one.
type Reader interface {
	Held(context.Context) (inspect.List, error)
	Queues(context.Context) ([]inspect.Queue, error)
	Servers(context.Context) ([]inspect.Server, error)
}

// A Fleet sums up what a Reader reads. It has at most [labels.Limit] classes and as many queues, and
// [labels.Other]. It is safe for concurrent use.
type Fleet struct {
	reader          Reader
	classes, queues *labels.Set[string]
}

// New returns the fleet that r reads.
func New(r Reader) *Fleet {
	same := func(word string) string { return word }
	return &Fleet{reader: r, classes: labels.NewSet(same), queues: labels.NewSet(same)}
}

// A State is the state of a fleet at one time.
type State struct {
	Classes map[string]Class
	Unread  int // contended locks that Classes leaves out
	Queues  map[string]Queue

	Servers   int // Unguarded included
	Unguarded int // servers that run tasks of guarded queues without their locks
}

// A Class sums up the locks of a class of resources.
type Class struct {
	Held       map[inspect.LockState]int // for each state but free
	Waiting    int                       // without the tasks of paused queues
	OldestWait time.Duration             // 0 if nobody waits
	// Unserved of the locks are free for waiting tasks which no server has taken for 3 s: the longest for LongestUnserved.
	Unserved        int
	LongestUnserved time.Duration
}

// A Queue sums up the tasks of a queue.
type Queue struct {
	Tasks  map[string]int // by asynq's states, with waiting and retrying for retry
	Paused int            // 1 or 0
	// Held lines wait for a task that has failed, and those of them that have Stopped for an operator.
	Held, Stopped int
}

// Read reads the state within 2 s. It returns all of the state, or an error.
func (f *Fleet) Read(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	locks, err := f.reader.Held(ctx)
	if err != nil {
		return State{}, fmt.Errorf("locks: %w", err)
	}
	queues, err := f.reader.Queues(ctx)
	if err != nil {
		return State{}, fmt.Errorf("queues: %w", err)
	}
	servers, err := f.reader.Servers(ctx)
	if err != nil {
		return State{}, fmt.Errorf("servers: %w", err)
	}
	s := State{Classes: make(map[string]Class), Unread: locks.LeftOut, Queues: make(map[string]Queue), Servers: len(servers)}
	for _, l := range locks.Locks {
		s.addLock(f.classes.Of(labels.Class(l.Resource)), l)
	}
	for _, q := range queues {
		s.addQueue(f.queues.Of(q.Name), q)
	}
	for _, server := range servers {
		if len(server.Unguarded) > 0 {
			s.Unguarded++
		}
	}
	return s, nil
}

func (s *State) addLock(name string, l inspect.Lock) {
	c, known := s.Classes[name]
	if !known {
		c.Held = map[inspect.LockState]int{inspect.Held: 0, inspect.Revoked: 0, inspect.Reserved: 0, inspect.Foreign: 0}
	}
	if l.State != inspect.Free {
		c.Held[l.State]++
	}
	if waiting := l.Waiting - l.Paused; waiting > 0 {
		c.Waiting += waiting
		c.OldestWait = max(c.OldestWait, time.Duration(l.OldestWait))
		if l.Unserved > 0 {
			c.Unserved++
			c.LongestUnserved = max(c.LongestUnserved, time.Duration(l.Unserved))
		}
	}
	s.Classes[name] = c
}

func (s *State) addQueue(name string, q inspect.Queue) {
	sum, known := s.Queues[name]
	if !known {
		sum.Tasks = make(map[string]int)
	}
	for state, n := range map[string]int{
		"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "aggregating": q.Aggregating,
		"waiting": q.Waiting, "retrying": q.Retrying, "archived": q.Archived, "completed": q.Completed,
	} {
		sum.Tasks[state] += n
	}
	if q.Paused {
		sum.Paused = 1
	}
	sum.Held, sum.Stopped = sum.Held+q.Held, sum.Stopped+q.Stopped
	s.Queues[name] = sum
}
