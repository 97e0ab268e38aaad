package chaos

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Queues are those of every fleet. Tasks of both want the same resources.
var Queues = []string{"chaos-a", "chaos-b"}

// Resources are what the tasks want.
func Resources() []string { return append(Things(), pools()...) }

// Things are those that one task may hold at a time.
func Things() []string { return slices.Concat(numbered("thing:", 10), merged(), lines()) }

// pools are those that several tasks may hold at a time.
func pools() []string { return numbered(poolPrefix, 2) }

func numbered(prefix string, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return names
}

const poolPrefix = "pool:"

// IsPool reports whether a resource is one of pools.
func IsPool(resource string) bool { return strings.HasPrefix(resource, poolPrefix) }

// PoolHolders is how many tasks may hold a pool at a time.
const PoolHolders = 3

// poolLimit is that of each pool. More tasks want it all the time, also on a slow machine. The rates leave a
// pool idle for a second at most, which is less than [resumption].
var poolLimit = queue.Limit{Holders: PoolHolders, Rates: []lock.Rate{{Starts: 4, Period: 500 * time.Millisecond}, {Starts: 12, Period: 2 * time.Second}}}

// limits are those of every fleet.
func limits() map[string]queue.Limit { return map[string]queue.Limit{poolPrefix + "*": poolLimit} }

// A Guarded task works on a resource.
type Guarded struct {
	Work

	Thing string `json:"thing"`
}

// Kind implements [queue.Task].
func (Guarded) Kind() string { return "chaos:guarded" }

// Resource implements [queue.Guarded].
func (t Guarded) Resource() string { return t.Thing }

// A Lined task is one of those that keep their order. Some workers work on several at once.
type Lined struct{ Guarded }

// Kind implements [queue.Task].
func (Lined) Kind() string { return "chaos:lined" }

// A Free task works on nothing that others want.
type Free struct{ Work }

// Kind implements [queue.Task].
func (Free) Kind() string { return "chaos:free" }

// Work is what a task does.
type Work struct {
	Fate Fate `json:"fate"`
	// Takes is how long, in ms.
	Takes int `json:"takes"`
	// Stubborn work does not notice that its context has ended, and tries to
	// write its effect.
	Stubborn bool `json:"stubborn,omitempty"`
}

// NewTask returns the n-th task of a run on a resource, unguarded if that is empty. The same seed
// gives the same task.
func NewTask(seed uint64, resource string, n uint64) (*Task, queue.Job) {
	id := fmt.Sprintf("%d-%s-%d", seed, cmp.Or(strings.ReplaceAll(resource, "\n", "+"), "free"), n)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id))
	r := rand.New(rand.NewPCG(seed, hash.Sum64()))
	queueName := Queues[r.IntN(len(Queues))]
	t := &Task{ID: id, Queue: queueName, Resource: resource, Fate: fate(r)}
	if IsLine(resource) && (t.Fate == FateFlaky || r.IntN(10) == 0) {
		t.Fate = FateTwice
	}
	// Long enough for each resource to have a holder most of the time.
	work := Work{Fate: t.Fate, Takes: 5 + r.IntN(20), Stubborn: r.IntN(4) == 0}
	if IsMerged(resource) {
		work.Takes = 100 // the payloads of most are equal
	}
	if r.IntN(300) == 0 { // long enough to be renewed, and to be told that the lock is lost
		work.Takes = 1000 + r.IntN(5000)
	}
	options := &queue.Options{Queue: queueName, TaskID: t.ID}
	if t.Fate.once() {
		options.Retries = queue.NoRetries
	}
	if resource == "" {
		return t, queue.Job{Task: Free{work}, Options: options}
	}
	if !IsSet(resource) {
		drawWait(r, t, options)
	}
	task := Guarded{work, resource}
	if IsLine(resource) {
		return t, queue.Job{Task: Lined{task}, Options: options}
	}
	return t, queue.Job{Task: task, Options: options}
}

func fate(r *rand.Rand) Fate {
	switch n := r.IntN(100); {
	case n < 10:
		return FateOnce
	case n < 11:
		return FateFlaky
	case n < 12:
		return FateHopeless
	case n < 13:
		return FatePermanent
	default:
		return FateOK
	}
}

func (w Work) takes() time.Duration { return time.Duration(w.Takes) * time.Millisecond }
