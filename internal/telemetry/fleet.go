package telemetry

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/sidingq/siding/inspect"
)

// readWithin bounds the reading, and so the time for which a scrape waits.
const readWithin = 2 * time.Second

// A Reader reads the state of the whole fleet. An [inspect.Inspector] is one.
type Reader interface {
	Held(context.Context) (inspect.List, error)
	Queues(context.Context) ([]inspect.Queue, error)
	Servers(context.Context) ([]inspect.Server, error)
}

// A Fleet sums up what a Reader reads. It has at most [Limit] classes and as many queues, and
// [Other]. Shards beyond that count with their queue. It is safe for concurrent use.
type Fleet struct {
	reader          Reader
	classes, queues *Set[string]
}

// NewFleet returns the fleet that r reads.
func NewFleet(r Reader) *Fleet {
	same := func(word string) string { return word }
	return &Fleet{reader: r, classes: NewSet(same), queues: NewSet(same)}
}

// A State is the state of a fleet at one time.
type State struct {
	Classes map[string]ClassState
	Unread  int // contended locks that Classes leaves out
	Queues  map[string]QueueState

	Servers   int // Unguarded included
	Unguarded int // servers that run tasks of guarded queues without their locks
}

// A ClassState sums up the locks of a class of resources.
type ClassState struct {
	Held       map[inspect.LockState]int // for each state but free
	Waiting    int                       // without the tasks of paused queues
	OldestWait time.Duration             // 0 if nobody waits
	// Unserved of the locks are free for waiting tasks which no server has taken for 3 s: the longest for LongestUnserved.
	Unserved        int
	LongestUnserved time.Duration
}

// A QueueState sums up the tasks of a queue, or of several that share a word.
type QueueState struct {
	Tasks  map[string]int // by asynq's states, with waiting and retrying for retry
	Paused int            // 1 if all of them are, else 0
	// Held lines wait for a task that has failed, and those of them that have Stopped for an operator.
	Held, Stopped int
}

// Read reads the state within 2 s. It returns all of the state, or an error.
func (f *Fleet) Read(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
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
	s := State{Classes: make(map[string]ClassState), Unread: locks.LeftOut, Queues: make(map[string]QueueState), Servers: len(servers)}
	for _, l := range locks.Locks {
		s.addLock(f.classes.Of(Class(l.Resource)), l)
	}
	for _, q := range queues {
		f.queues.Of(queueOf(q.Name)) // first, as there may be more shards than words
	}
	for _, q := range queues {
		s.addQueue(f.queue(q.Name), q)
	}
	for _, server := range servers {
		if len(server.Unguarded) > 0 {
			s.Unguarded++
		}
	}
	return s, nil
}

// queue returns the word of an asynq queue: its own, or that of the queue whose shard it is, which is the next best to tell apart
// what is served and what is not.
func (f *Fleet) queue(name string) string {
	if own := f.queues.Of(name); own != Other {
		return own
	}
	return f.queues.Of(queueOf(name))
}

// queueOf returns the queue whose shard has this name, such as orders for orders.003-xh, or else the name.
func queueOf(name string) string {
	if at := shard.FindStringIndex(name); at != nil {
		return name[:at[0]]
	}
	return name
}

var shard = regexp.MustCompile(`\.[0-9]{3}-[a-z]{2}$`)

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
		sum.Tasks, sum.Paused = make(map[string]int), 1
	}
	for state, n := range map[string]int{
		"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "aggregating": q.Aggregating,
		"waiting": q.Waiting, "retrying": q.Retrying, "archived": q.Archived, "completed": q.Completed,
	} {
		sum.Tasks[state] += n
	}
	if !q.Paused {
		sum.Paused = 0
	}
	sum.Held, sum.Stopped = sum.Held+q.Held, sum.Stopped+q.Stopped
	s.Queues[name] = sum
}
