package lockredis

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

var commitScript = Script(luaFiles, "commit")

// A call is a call on a lock, on its way to Redis. Its caller waits for it.
type call struct {
	ctx  context.Context //nolint:containedctx // of the caller
	key  string          // of the lock, or of its permit
	args []any           // the kind of the call, and what the script wants of that

	done  chan struct{} // closed when the call has an answer
	reply any
	err   error
}

// A lateError is that of a caller who has gone, at its deadline, before its call had an answer. Redis may still do what the call says.
type lateError struct {
	error

	done <-chan struct{} // closed when it does not any more
}

func (e *lateError) Unwrap() error { return e.error }

// A committer sends calls on locks to one Redis. Those that come while others are under way go together as soon as some of these
// are answered, as a database commits its transactions in groups: under load one script serves many locks, and without load a
// call leaves at once.
// There is no goroutine for that which lives on: a caller sends its own call, and a goroutine sends groups until none waits.
//
// Two calls on the same lock are not under way together, unless the first hangs. So a script that runs twice, as its answer was lost,
// does to each lock what a call does that runs twice.
type committer struct {
	send func(ctx context.Context, calls []*call) // gives each its answer

	mu      sync.Mutex
	waiting []*call
	groups  []*group        // under way, and not for too long yet
	away    map[string]bool // the locks of these
}

// A group is calls that are under way together.
type group struct {
	calls []*call
	left  time.Time
	timer *time.Timer // ends the waiting for it; nil while nobody waits
}

const (
	// mostGroups are under way at once, so that a call does not wait for the whole round trip of the one before. If there are more,
	// each is smaller: a fifth one costs two percent of the acquisitions on loopback, and gains one percent where a round trip takes 0.5 ms.
	mostGroups = 4
	// mostCalls go together: Redis does nothing else meanwhile.
	mostCalls = 100
	// patience is for how long calls wait for those that are under way. A connection that hangs holds up no others for longer.
	patience = 50 * time.Millisecond
)

func newCommitter(send func(context.Context, []*call)) *committer {
	return &committer{send: send, away: make(map[string]bool)}
}

// do makes a call. If ctx ends before the call has left, nothing was done. A call that is under way is waited for, except past
// the deadline of ctx, when the error is a [lateError].
func (m *committer) do(ctx context.Context, key string, args ...any) (any, error) {
	c := &call{ctx: ctx, key: key, args: args, done: make(chan struct{})}
	m.mu.Lock()
	m.waiting = append(m.waiting, c)
	g := m.depart() //nolint:contextcheck // each call has its own
	m.mu.Unlock()
	switch {
	case g == nil:
	case len(g.calls) == 1 && g.calls[0] == c:
		if next := m.lead(g); next != nil { //nolint:contextcheck // each call has its own
			go m.leadAll(next) //nolint:contextcheck // as above
		}
		return c.reply, c.err
	default: // among them are some that this caller may not have the time to wait for
		go m.leadAll(g) //nolint:contextcheck // as above
	}
	select {
	case <-c.done:
		return c.reply, c.err
	case <-ctx.Done():
	}
	if m.withdraw(c) {
		return nil, ctx.Err()
	}
	var late <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.done:
		return c.reply, c.err
	case <-late:
		return nil, &lateError{ctx.Err(), c.done}
	}
}

// depart returns the group that leaves now; nil if all calls have to wait. m.mu is held.
func (m *committer) depart() *group {
	var calls []*call
	if len(m.groups) < mostGroups {
		m.waiting = slices.DeleteFunc(m.waiting, func(c *call) bool {
			lock := store.LockOf(c.key)
			leaves := len(calls) < mostCalls && !m.away[lock]
			if leaves {
				m.away[lock] = true
				calls = append(calls, c)
			}
			return leaves
		})
	}
	var g *group
	if len(calls) > 0 {
		g = &group{calls: calls, left: time.Now()}
		m.groups = append(m.groups, g)
	}
	if len(m.waiting) > 0 {
		m.hurry()
	}
	return g
}

// hurry has calls wait for the groups under way with patience, and no longer. m.mu is held.
func (m *committer) hurry() {
	for _, g := range m.groups {
		if g.timer == nil {
			g.timer = time.AfterFunc(patience-time.Since(g.left), func() { m.leadAll(m.end(g)) })
		}
	}
}

// end ends the waiting for a group, if it has not ended, and returns the one that leaves then; nil for none.
func (m *committer) end(g *group) *group {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.groups, g)
	if i < 0 {
		return nil
	}
	m.groups = slices.Delete(m.groups, i, i+1)
	for _, c := range g.calls {
		delete(m.away, store.LockOf(c.key))
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	return m.depart()
}

// withdraw reports whether a call has not left, and does not any more.
func (m *committer) withdraw(c *call) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.waiting, c)
	if i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	return i >= 0
}

// lead sends a group, and returns the one that leaves when it is answered; nil for none. Those who were answered go on before that, so
// that what they ask for next goes with it, too.
func (m *committer) lead(g *group) *group {
	m.sendAll(g.calls)
	for _, c := range g.calls {
		close(c.done)
	}
	if len(g.calls) > 1 {
		runtime.Gosched()
	}
	return m.end(g)
}

// sendAll sends calls. If a hook of the user's client panics, that is their error: it may be in a goroutine of which the user knows
// nothing, and would end the process there.
func (m *committer) sendAll(calls []*call) {
	ctx, cancel := together(calls)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			for _, c := range calls {
				c.err = fmt.Errorf("the client of Redis has panicked: %v", p)
			}
		}
	}()
	m.send(ctx, calls)
}

// leadAll sends a group, if there is one, and those that leave after it. In a goroutine for each of them its stack would have to grow.
func (m *committer) leadAll(g *group) {
	for g != nil {
		g = m.lead(g)
	}
}

// together returns a context for calls. It ends when nobody waits for their answer any more.
func together(calls []*call) (context.Context, context.CancelFunc) {
	if len(calls) == 1 {
		return calls[0].ctx, func() {}
	}
	ctx, last := context.WithoutCancel(calls[0].ctx), time.Time{}
	for _, c := range calls {
		end, ends := c.ctx.Deadline()
		if !ends {
			return ctx, func() {}
		}
		if end.After(last) {
			last = end
		}
	}
	return context.WithDeadline(ctx, last)
}

// A pipeliner is a client that can send several scripts in one round trip.
type pipeliner interface {
	redis.Scripter
	Pipeline() redis.Pipeliner
}

// caller returns how calls reach the Redis that has a lock. In a Cluster those for one node go together. With a client that
// spreads keys in a way of its own none do.
func caller(rdb redis.Scripter) func(ctx context.Context, key string, args ...any) (any, error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return committed(rdb, false).do
	case *redis.ClusterClient:
		var mu sync.Mutex
		nodes := make(map[string]*committer) // by address
		return func(ctx context.Context, key string, args ...any) (any, error) {
			address := ""
			if node, err := rdb.MasterForKey(ctx, key); err == nil {
				address = node.Options().Addr
			}
			mu.Lock()
			m := nodes[address]
			if m == nil {
				m = committed(rdb, true)
				nodes[address] = m
			}
			mu.Unlock()
			return m.do(ctx, key, args...)
		}
	default:
		return func(ctx context.Context, key string, args ...any) (any, error) {
			c := &call{ctx: ctx, key: key, args: args}
			commit(ctx, rdb, false, c)
			return c.reply, c.err
		}
	}
}

// committed returns a committer for one Redis, or for a node of a Cluster.
func committed(rdb pipeliner, cluster bool) *committer {
	var apart atomic.Bool // each call is a script of its own, as locks are in several slots
	apart.Store(cluster)
	return newCommitter(func(ctx context.Context, calls []*call) {
		if !apart.Load() || len(calls) == 1 {
			commit(ctx, rdb, cluster, calls...)
			switch { // Redis has done nothing
			case redis.HasErrorPrefix(calls[0].err, "CROSSSLOT"): // there is a Cluster behind a proxy
				apart.Store(true)
			case redis.HasErrorPrefix(calls[0].err, "NOPERM") && len(calls) > 1: // the user may not have some of the locks
			default:
				return
			}
		}
		pipe, scripts := rdb.Pipeline(), make([]*redis.Cmd, len(calls))
		for i, c := range calls {
			scripts[i] = commitScript.EvalSha(ctx, pipe, []string{c.key}, append([]any{flag(cluster)}, c.args...)...)
		}
		_, _ = pipe.Exec(ctx) // each call has its own error
		for i, c := range calls {
			if redis.HasErrorPrefix(scripts[i].Err(), "NOSCRIPT") {
				commit(ctx, rdb, cluster, c)
			} else {
				answered(scripts[i], c)
			}
		}
	})
}

// commit sends calls in one script.
func commit(ctx context.Context, rdb redis.Scripter, cluster bool, calls ...*call) {
	keys, args := make([]string, 0, len(calls)), make([]any, 0, 1+5*len(calls))
	args = append(args, flag(cluster))
	for _, c := range calls {
		keys, args = append(keys, c.key), append(args, c.args...)
	}
	answered(commitScript.Run(ctx, rdb, keys, args...), calls...)
}

// answered gives each call its answer, which may be an error.
func answered(answer *redis.Cmd, calls ...*call) {
	v, err := answer.Result()
	replies, isList := v.([]any)
	if err == nil && (!isList || len(replies) != len(calls)) {
		err = fmt.Errorf("%w: want a list of %d, have another one, or %T", redisreply.ErrReply, len(calls), v)
	}
	for i, c := range calls {
		if c.err = err; err != nil {
			continue
		}
		if of, ok := replies[i].([]any); ok && redisreply.Text(of, 0) == "refused" {
			c.err = refusal(redisreply.Text(of, 1))
		} else {
			c.reply = replies[i]
		}
	}
}

// A refusal is an error of Redis that concerns one of the calls.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError marks an answer of Redis, see [redis.Error].
func (refusal) RedisError() {}
