// Package redisstore is the store on Redis: it keeps locks, their wait queues and their fences.
package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// Each script is one file, and its contract is at the top. Some of the scripts share take.lua,
// join.lua and queue.lua.
var (
	//go:embed take.lua
	takeSource string
	//go:embed join.lua
	joinSource string
	//go:embed queue.lua
	queueSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed confirm.lua
	confirmSource string
	//go:embed sweep.lua
	sweepSource string
	//go:embed missing.lua
	missingSource string

	renewScript   = redis.NewScript(renewSource)
	confirmScript = redis.NewScript(confirmSource)
	missingScript = redis.NewScript(missingSource)
)

// handoffScripts are the scripts with queue.lua in them.
type handoffScripts struct{ acquire, release, leave, sweep *redis.Script }

// noWaking leaves it to the client to wake the waiters who do not listen.
const noWaking = "local wake_waiter\n"

// scriptsWith returns the scripts that wake waiters with wake.
func scriptsWith(wake string) handoffScripts {
	with := func(source string) *redis.Script { return redis.NewScript(withParts(source, wake)) }
	return handoffScripts{acquire: with(acquireSource), release: with(releaseSource), leave: with(leaveSource), sweep: with(sweepSource)}
}

// withParts replaces the names of files in parentheses by the files. wake comes before queue.lua.
func withParts(source, wake string) string {
	return strings.NewReplacer("-- (take.lua)\n", takeSource, "-- (join.lua)\n", joinSource, "-- (queue.lua)\n", wake+queueSource).Replace(source)
}

// reservedPrefix begins the value of a lock that is reserved for a waiter.
const reservedPrefix = "siding-reserved:"

type redisStore struct {
	rdb     redis.Scripter
	scripts handoffScripts
	cluster bool
}

// New returns a [store.Store] on rdb, which it does not close; see lock.Redis.
func New(rdb redis.Scripter) store.Store { return Waking(rdb, noWaking) }

// None reports whether rdb is nil, or a nil pointer.
func None(rdb redis.Scripter) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Waking returns a [store.Store] like that of [New]. It wakes a waiter in the step in which it
// reserves the lock. With [New] the client would have to wake that waiter. wake is a text in Lua
// that defines the local function
//
//	wake_waiter(waiter, ticket, start)
//
// wake_waiter makes the waiter come at once, and returns 'woken'. The function returns 'gone' if
// the waiter cannot come any more, and 'paused' if the waiter cannot come for now. It returns nil
// if the client has to wake the waiter. If start is not nil, it is a table that ends with
// Start.Args. Then wake_waiter may start the waiter. If so, it returns 'started' and a table: the
// holder's name, and the fields of Reservation.Reply. If it fails after it has written, the lock
// stays taken for its TTL.
//
// A Cluster does not use wake, as its scripts cannot reach keys of other slots.
func Waking(rdb redis.Scripter, wake string) store.Store {
	_, cluster := rdb.(*redis.ClusterClient)
	if cluster {
		wake = noWaking
	}
	s := &redisStore{rdb: rdb, scripts: scriptsWith(wake), cluster: cluster}
	_, many := rdb.(*redis.Ring)
	if rdb, ok := rdb.(subscriber); ok && !many {
		return &redisListener{redisStore: s, rdb: rdb}
	}
	return s
}

// Keys are the Redis keys of one lock: the lock, its last fencing token, its wait queue, and the
// waiters of paused groups. The lock's own key has no braces, so a Cluster hashes all of it. The
// others have it as their hash tag, and so are in the same slot.
func Keys(key string) []string {
	return []string{key, "{" + key + "}:fence", "{" + key + "}:queue", "{" + key + "}:paused"}
}

func reservedBegin(nonce string) string { return reservedPrefix + nonce + ":" }

func (s *redisStore) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	r := newReply(s.scripts.acquire.Run(ctx, s.rdb, Keys(c.Key),
		c.Token, ms(c.TTL), ms(c.FenceTTL), c.Waiter, c.Waited.Microseconds(),
		flag(c.Handoff.Stepwise), flag(s.cluster), reservedBegin(c.Handoff.Nonce), ms(c.Handoff.Timeout), ms(c.Handoff.QueueTTL), c.Came).Result())
	if r.number() == 1 {
		return store.Result{Taken: r.err == nil, Fence: r.number(), HandOff: time.Duration(r.number()) * time.Microsecond, From: r.text()}, r.err
	}
	a := r.busy()
	if next := r.reservation(c.Key); next.Value != "" {
		a.Next = next
	}
	return a, r.err
}

func (s *redisStore) Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	ours, err := renewScript.Run(ctx, s.rdb, Keys(key)[:2], token, ms(ttl), ms(fenceTTL)).Int()
	if err == nil && ours == 0 {
		return store.ErrLost
	}
	return err
}

func (s *redisStore) Release(ctx context.Context, key, token string, r store.Release) (*store.Reservation, error) {
	argv := []any{token, flag(r.Stepwise), flag(s.cluster), reservedBegin(r.Nonce), ms(r.Timeout), ms(r.QueueTTL), r.For, r.Fence}
	if start := r.Start; start != nil && !s.cluster {
		argv = append(append(argv, start.ID, ms(start.TTL), ms(start.FenceTTL)), start.Args...)
	}
	keys := append(Keys(key), "{"+key+"}:released:"+r.Nonce)
	send := r.Send
	if send == nil {
		send = func(ctx context.Context, keys []string, argv []any) (any, error) {
			return s.scripts.release.Run(ctx, s.rdb, keys, argv...).Result()
		}
	}
	reply := newReply(send(ctx, keys, argv))
	return reply.handedOff(key)
}

func (s *redisStore) Leave(ctx context.Context, key, waiter string, l store.Leave) (*store.Reservation, error) {
	r := newReply(s.scripts.leave.Run(ctx, s.rdb, Keys(key), waiter, l.Reservation,
		flag(l.Stepwise), flag(s.cluster), reservedBegin(l.Nonce), ms(l.Timeout), ms(l.QueueTTL), flag(l.Paused)).Result())
	return r.handedOff(key)
}

func (s *redisStore) Confirm(ctx context.Context, r store.Reservation) error {
	k := Keys(r.Key)
	return confirmScript.Run(ctx, s.rdb, []string{k[0], k[2]}, r.Waiter, r.Value).Err()
}

// Sweep implements [store.Sweeper].
func (s *redisStore) Sweep(ctx context.Context, keys []string, resumed bool, h store.Handoff) ([]store.Swept, error) {
	steps := make([]step, len(keys))
	for i, key := range keys {
		steps[i].keys = Keys(key)
	}
	argv := []any{flag(h.Stepwise), flag(s.cluster), reservedBegin(h.Nonce), ms(h.Timeout), ms(h.QueueTTL), flag(resumed)}
	got, err := s.together(ctx, s.scripts.sweep, argv, steps)
	found := make([]store.Swept, len(got))
	for i, v := range got {
		left, plain := v.(int64)
		if !plain && err == nil {
			r := newReply(v, nil)
			left, found[i].Next, err = r.number(), r.reservation(keys[i]), r.err
		}
		const nobody = -3
		found[i].Waiting, found[i].Left = left != nobody, time.Duration(left)*time.Millisecond
	}
	return found, err
}

// Missing implements [store.Sweeper].
func (s *redisStore) Missing(ctx context.Context, waiters []store.Queued, rejoin bool, queueTTL time.Duration) ([]bool, error) {
	steps := make([]step, len(waiters))
	for i, p := range waiters {
		steps[i] = step{Keys(p.Key)[2:], []any{p.Waiter, p.Ticket}}
	}
	got, err := s.together(ctx, missingScript, []any{flag(rejoin), ms(queueTTL)}, steps)
	missing := make([]bool, len(got))
	for i, v := range got {
		missing[i] = v == int64(1)
	}
	return missing, err
}

// A step is one of the locks that a script works on.
type step struct {
	keys []string
	argv []any // of this lock alone; they come after those of all locks
}

// together runs a script that returns an answer for each of its steps. A client of a single node
// makes one call. Other clients make a call for each step. In a Cluster the calls to one node share
// a round trip.
func (s *redisStore) together(ctx context.Context, script *redis.Script, argv []any, steps []step) ([]any, error) {
	if _, single := s.rdb.(*redis.Client); single {
		var keys []string
		for _, one := range steps {
			keys, argv = append(keys, one.keys...), append(argv, one.argv...)
		}
		return script.Run(ctx, s.rdb, keys, argv...).Slice()
	}
	calls := make([]*redis.Cmd, len(steps))
	send := func(rdb redis.Scripter) {
		for i, one := range steps {
			calls[i] = script.EvalSha(ctx, rdb, one.keys, append(slices.Clip(argv), one.argv...)...)
		}
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		pipe := cluster.Pipeline()
		send(pipe)
		_, _ = pipe.Exec(ctx) // the errors are those of the calls
	} else {
		send(s.rdb)
	}
	var answers []any
	for i, call := range calls {
		if redis.HasErrorPrefix(call.Err(), "NOSCRIPT") {
			call = script.Eval(ctx, s.rdb, steps[i].keys, append(slices.Clip(argv), steps[i].argv...)...)
		}
		answer, err := call.Slice()
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer...)
	}
	return answers, nil
}

// A subscriber is a client that can listen on channels of Redis.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A redisListener hears what the scripts publish.
type redisListener struct {
	*redisStore

	rdb subscriber
}

// Listen follows https://redis.io/docs/latest/develop/pubsub/: Redis delivers a message at most
// once, and none while there is no connection.
func (s *redisListener) Listen(ctx context.Context, id string, heard func(), wake func(waiter string)) error {
	return s.subscribe(ctx, []string{store.GoroutinePrefix + id}, heard, wake)
}

// ListenForTasks implements [store.TaskListener].
func (s *redisListener) ListenForTasks(ctx context.Context, groups []string, heard func(), wake func(message string)) error {
	channels := make([]string, len(groups))
	for i, group := range groups {
		channels[i] = store.TaskPrefix + group
	}
	return s.subscribe(ctx, channels, heard, wake)
}

func (s *redisListener) subscribe(ctx context.Context, channels []string, heard func(), message func(string)) error {
	const checkEvery = time.Second // a ping finds a dead connection, which is then replaced
	pubsub := s.rdb.Subscribe(ctx, channels...)
	defer pubsub.Close()
	messages := pubsub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(checkEvery))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-messages:
			switch m := m.(type) {
			case *redis.Subscription:
				heard()
			case *redis.Message:
				message(m.Payload)
			}
			if !open {
				return fmt.Errorf("lock: listen: %w", redis.ErrClosed)
			}
		}
	}
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
