package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// An event is what a client notes of an operation, at once. So the event is known also when the
// client dies. All times are those of the machine's wall clock in nanoseconds, which its processes
// have in common.
type event struct {
	Op      string // names the operation; no two have the same name
	Client  int
	Kind    string
	Key     string
	Lease   string
	Fence   int64
	Call    int64  `json:",omitempty"` // when it began, in the first event of an operation
	Return  int64  `json:",omitempty"` // when it ended, in the last
	Outcome string `json:",omitempty"`
}

// evAnswered is an event that is no operation. The store has answered a call that was sent at Call,
// which gave the lease of Fence another TTL.
const evAnswered = "answered"

// A crew is some clients of one process, which have a Locker in common.
type crew struct {
	Number  int
	Clients int
	Keys    []string
	Config  lock.Config
	Seed    uint64
	For     time.Duration
	Addr    string // of Redis, for a crew in a process of its own
	Retries int    // of the Redis client, see redis.Options
}

// run has all clients of the crew fight over its locks, and returns when they are done.
func (c crew) run(ctx context.Context, rdb redis.UniversalClient, note func(event)) error {
	locker, err := lock.New(newWitness(lock.Redis(rdb), c.Config.Prefix, note), c.Config)
	if err != nil {
		return err
	}
	defer locker.Close()
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	var all sync.WaitGroup
	for i := range c.Clients {
		all.Go(func() {
			number := c.Number*100 + i
			client := &historyClient{
				crew:   c,
				number: number,
				locker: locker,
				note:   note,
				rng:    rand.New(rand.NewPCG(c.Seed, uint64(number))),
			}
			for ctx.Err() == nil {
				client.round(ctx)
			}
		})
	}
	all.Wait()
	return nil
}

// A historyClient takes locks, looks at them and releases them, one at a time.
type historyClient struct {
	crew

	number int
	locker *lock.Locker
	note   func(event)
	rng    *rand.Rand
	ops    int
}

// round is one lock, from before it is taken until after it is released.
func (c *historyClient) round(ctx context.Context) {
	key := c.Keys[c.rng.IntN(len(c.Keys))]
	held, name := c.acquire(ctx, key)
	if held == nil {
		c.rest(ctx, 10*time.Millisecond)
		return
	}
	work := ctx
	kept := c.chance(3, 4)
	if kept {
		work = held.Context(ctx)
	}
	ttl := c.Config.TTL
	stay := c.between(0, 15*time.Millisecond)
	if c.chance(1, 12) { // until it must have been renewed, or be lost
		stay = c.between(ttl/2, ttl*3/2)
	}
	for end := time.Now().Add(stay); ; {
		if !c.use(held, key, name) {
			c.rest(ctx, ttl/4) // in which another may take the lock
			if kept {
				c.again(context.WithoutCancel(work), key, name)
			}
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			break
		}
		if kept && c.chance(1, 4) {
			c.again(work, key, name)
		}
		c.rest(ctx, 8*time.Millisecond)
	}
	if c.chance(1, 40) { // and it is never seen again
		abandon(held)
		return
	}
	c.release(ctx, held, key, name)
}

// acquire returns nil when the lock could not be had.
func (c *historyClient) acquire(ctx context.Context, key string) (*lock.Lease, string) {
	ways := []lock.Options{{}, {}, {Wait: lock.Forever}, {Wait: lock.Forever, Retry: lock.Fixed(5 * time.Millisecond), Tries: 5}}
	opts := &ways[c.rng.IntN(len(ways))]
	ctx, cancel := context.WithTimeout(ctx, 2*c.Config.TTL)
	defer cancel()
	e := c.begin(opAcquire, key, "")
	e.Lease = e.Op
	c.note(e)
	held, err := c.locker.Acquire(ctx, key, opts)
	e.Return = time.Now().UnixNano()
	var busy *lock.BusyError
	switch {
	case err == nil:
		e.Outcome, e.Fence = outOK, held.Fence()
	case errors.As(err, &busy) && ctx.Err() == nil && busy.Holder != "the next in the wait queue":
		e.Outcome = outBusy
	case errors.As(err, &busy) && ctx.Err() == nil:
		return nil, "" // kept for somebody, but held by nobody: the model knows no such thing
	default:
		e.Outcome = outOpen
	}
	c.note(e)
	return held, e.Lease
}

// use reports whether the lease is trusted, which it may be only while it holds
// the lock.
func (c *historyClient) use(held *lock.Lease, key, name string) bool {
	e := c.begin(opUse, key, name)
	if held.Deadline().IsZero() {
		return false
	}
	e.Return, e.Outcome = time.Now().UnixNano(), outOK
	c.note(e)
	return true
}

// again takes the lock a second time, looks at it and releases that. It needs a lease that is
// renewed. Otherwise the client would be another holder.
func (c *historyClient) again(work context.Context, key, name string) {
	e := c.begin(opAgain, key, name)
	c.note(e)
	inner, err := c.locker.Acquire(work, key, &lock.Options{Reentrant: true})
	e.Return, e.Outcome = time.Now().UnixNano(), outLost
	if err == nil {
		e.Outcome, e.Fence = outOK, inner.Fence()
	}
	c.note(e)
	if err != nil {
		return
	}
	c.use(inner, key, name)
	c.release(work, inner, key, name)
}

func (c *historyClient) release(ctx context.Context, held *lock.Lease, key, name string) {
	e := c.begin(opRelease, key, name)
	c.note(e)
	err := held.Release(ctx)
	e.Return = time.Now().UnixNano()
	switch {
	case err == nil:
		e.Outcome = outOK
	case errors.Is(err, lock.ErrLost):
		e.Outcome = outLost
	default:
		e.Outcome = outOpen
	}
	c.note(e)
}

func (c *historyClient) begin(kind, key, held string) event {
	c.ops++
	return event{
		Op:     fmt.Sprintf("%d.%d", c.number, c.ops),
		Client: c.number,
		Kind:   kind,
		Key:    key,
		Lease:  held,
		Call:   time.Now().UnixNano(),
	}
}

func (c *historyClient) chance(n, of int) bool { return c.rng.IntN(of) < n }

func (c *historyClient) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)))
}

// rest waits for up to longest.
func (c *historyClient) rest(ctx context.Context, longest time.Duration) {
	_ = sleep.For(ctx, c.between(0, longest))
}

// A witness is a store that notes what its callers are not told. One thing is from when on the
// server counts a lease's TTL, at the earliest. The other is every failed attempt that may have
// taken a lock.
type witness struct {
	lock.Store

	prefix string // of keys
	note   func(event)

	mu     sync.Mutex
	fences map[string]int64 // by token
}

// listeningWitness is a witness of a store that wakes waiters.
type listeningWitness struct {
	*witness
	store.Listener
}

func newWitness(inner lock.Store, prefix string, note func(event)) lock.Store {
	w := &witness{Store: inner, prefix: prefix, note: note, fences: make(map[string]int64)}
	if l, ok := inner.(store.Listener); ok {
		return listeningWitness{w, l}
	}
	return w
}

func (w *witness) Acquire(ctx context.Context, claim store.Request) (store.Result, error) {
	start := time.Now().UnixNano()
	answer, err := w.Store.Acquire(ctx, claim)
	key := strings.TrimPrefix(claim.Key, w.prefix)
	switch {
	case err != nil:
		w.note(event{Op: claim.Token, Kind: opAcquire, Key: key, Lease: claim.Token, Call: start, Outcome: outOpen})
	case answer.Fence > 0:
		w.mu.Lock()
		w.fences[claim.Token] = answer.Fence
		w.mu.Unlock()
		w.note(event{Kind: evAnswered, Key: key, Fence: answer.Fence, Call: start})
	}
	return answer, err
}

func (w *witness) Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error {
	start := time.Now().UnixNano()
	err := w.Store.Renew(ctx, key, token, ttl, keep)
	if err == nil {
		w.mu.Lock()
		fence := w.fences[token]
		w.mu.Unlock()
		w.note(event{Kind: evAnswered, Key: strings.TrimPrefix(key, w.prefix), Fence: fence, Call: start})
	}
	return err
}
