// Package redisstore keeps locks, and the lines of those who wait for them, on Redis.
package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// Each script is one file with its own contract at the top; take.lua, join.lua and line.lua
// are what some of them share.
var (
	//go:embed take.lua
	takeSource string
	//go:embed join.lua
	joinSource string
	//go:embed line.lua
	lineSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed called.lua
	calledSource string
	//go:embed sweep.lua
	sweepSource string
	//go:embed places.lua
	placesSource string

	renewScript  = redis.NewScript(renewSource)
	calledScript = redis.NewScript(calledSource)
	placesScript = redis.NewScript(placesSource)
)

// lineScripts are the scripts that line.lua is a part of.
type lineScripts struct{ acquire, release, leave, sweep *redis.Script }

// nobodySummons is where all waiters who do not listen are called by hand.
const nobodySummons = "local summon\n"

// scriptsWith returns the scripts that call waiters by summon.
func scriptsWith(summon string) lineScripts {
	with := func(source string) *redis.Script { return redis.NewScript(withParts(source, summon)) }
	return lineScripts{acquire: with(acquireSource), release: with(releaseSource), leave: with(leaveSource), sweep: with(sweepSource)}
}

// withParts returns a script in which the files that it names in parentheses have been filled in.
// summon is put in front of line.lua.
func withParts(source, summon string) string {
	return strings.NewReplacer("-- (take.lua)\n", takeSource, "-- (join.lua)\n", joinSource, "-- (line.lua)\n", summon+lineSource).Replace(source)
}

// reservedPrefix begins the value of a lock that is kept for a waiter.
const reservedPrefix = "siding-reserved:"

type redisStore struct {
	rdb     redis.Scripter
	scripts lineScripts
	cluster bool
}

// New returns a [store.Store] on rdb, which it does not close; see lock.Redis.
func New(rdb redis.Scripter) store.Store { return newRedis(rdb, nobodySummons) }

// Calling returns a [store.Store] like that of [New] which calls waiters in the same
// step in which it reserves the lock for them, where they would have to be called by
// hand. It does so by summon, a text in Lua that defines the local function
//
//	summon(waiter, ticket, start)
//
// It makes the waiter come, at once, and returns 'called'; or 'gone' when that one cannot
// come any more, which takes it out of the line; or nil when it has to be called by hand
// after all. If start is not nil, it is a table that ends with Start.Args. Then it may let the waiter
// begin, and returns 'begun' and a table: the name of the lock's holder, and
// what becomes Turn.Answer. It may write before it fails with an error, but then the lock stays taken for its TTL.
// In a Cluster, where it could not reach keys of other slots, summon is not used.
func Calling(rdb redis.Scripter, summon string) store.Store { return newRedis(rdb, summon) }

func newRedis(rdb redis.Scripter, summon string) store.Store {
	_, cluster := rdb.(*redis.ClusterClient)
	if cluster {
		summon = nobodySummons
	}
	s := &redisStore{rdb: rdb, scripts: scriptsWith(summon), cluster: cluster}
	_, ring := rdb.(*redis.Ring)
	if rdb, ok := rdb.(subscriber); ok && !ring {
		return &redisListener{redisStore: s, rdb: rdb}
	}
	return s
}

// Keys are the Redis keys of one lock: its own, its last grant, its line, and those of
// its line who were set aside. The lock's own key has no braces, so all of it is hashed; the
// companions name it as their hash tag and so live in the same Redis Cluster slot.
func Keys(key string) []string {
	return []string{key, "{" + key + "}:fence", "{" + key + "}:line", "{" + key + "}:paused"}
}

func reservedBegin(nonce string) string { return reservedPrefix + nonce + ":" }

func (s *redisStore) Acquire(ctx context.Context, c store.Claim) (store.Answer, error) {
	r := newReply(s.scripts.acquire.Run(ctx, s.rdb, Keys(c.Key),
		c.Token, ms(c.TTL), ms(c.Keep), c.Waiter, c.Waited.Microseconds(),
		flag(c.Line.ByHand), flag(s.cluster), reservedBegin(c.Line.Nonce), ms(c.Line.Grace), ms(c.Line.Keep), c.Came).Result())
	if r.number() == 1 {
		return store.Answer{Taken: r.err == nil, Fence: r.number(), HandOff: r.microseconds()}, r.err
	}
	a := r.refusal()
	if next := r.turn(); next.Value != "" {
		a.Next = next
	}
	return a, r.err
}

func (s *redisStore) Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error {
	ours, err := renewScript.Run(ctx, s.rdb, Keys(key)[:2], token, ms(ttl), ms(keep)).Int()
	if err == nil && ours == 0 {
		return store.ErrLost
	}
	return err
}

func (s *redisStore) Release(ctx context.Context, key, token string, line store.Line) (*store.Turn, error) {
	argv := []any{token, flag(line.ByHand), flag(s.cluster), reservedBegin(line.Nonce), ms(line.Grace), ms(line.Keep), line.For, line.Fence}
	if start := line.Start; start != nil && !s.cluster {
		argv = append(append(argv, start.ID, ms(start.TTL), ms(start.Keep)), start.Args...)
	}
	keys := append(Keys(key), "{"+key+"}:released:"+line.Nonce)
	send := line.Send
	if send == nil {
		send = func(ctx context.Context, keys []string, argv []any) (any, error) {
			return s.scripts.release.Run(ctx, s.rdb, keys, argv...).Result()
		}
	}
	r := newReply(send(ctx, keys, argv))
	return r.passedOn()
}

func (s *redisStore) Leave(ctx context.Context, key, waiter, value string, line store.Line) (*store.Turn, error) {
	r := newReply(s.scripts.leave.Run(ctx, s.rdb, Keys(key), waiter, value,
		flag(line.ByHand), flag(s.cluster), reservedBegin(line.Nonce), ms(line.Grace), ms(line.Keep), flag(line.Paused)).Result())
	return r.passedOn()
}

func (s *redisStore) Called(ctx context.Context, key string, turn store.Turn) error {
	k := Keys(key)
	return calledScript.Run(ctx, s.rdb, []string{k[0], k[2]}, turn.Waiter, turn.Value).Err()
}

// Sweep implements [store.Sweeper].
func (s *redisStore) Sweep(ctx context.Context, keys []string, resumed bool, line store.Line) ([]store.Swept, error) {
	steps := make([]step, len(keys))
	for i, key := range keys {
		steps[i].keys = Keys(key)
	}
	argv := []any{flag(line.ByHand), flag(s.cluster), reservedBegin(line.Nonce), ms(line.Grace), ms(line.Keep), flag(resumed)}
	got, err := s.together(ctx, s.scripts.sweep, argv, steps)
	found := make([]store.Swept, len(got))
	for i, v := range got {
		left, plain := v.(int64)
		if !plain && err == nil {
			r := newReply(v, nil)
			left, found[i].Next, err = r.number(), r.turn(), r.err
		}
		const nobody = -3
		found[i].Waiting, found[i].Left = left != nobody, time.Duration(left)*time.Millisecond
	}
	return found, err
}

// Missing implements [store.Sweeper].
func (s *redisStore) Missing(ctx context.Context, places []store.Place, rejoin bool, keep time.Duration) ([]bool, error) {
	steps := make([]step, len(places))
	for i, p := range places {
		steps[i] = step{Keys(p.Key)[2:], []any{p.Waiter, p.Ticket}}
	}
	got, err := s.together(ctx, placesScript, []any{flag(rejoin), ms(keep)}, steps)
	missing := make([]bool, len(got))
	for i, v := range got {
		missing[i] = v == int64(1)
	}
	return missing, err
}

// A step is what a script does with one lock of many.
type step struct {
	keys []string
	argv []any // behind what all have in common
}

// together runs a script that returns an answer for each of its steps. With a client of a single
// node it is one call; else each step is a call, and in a Cluster those to one node share a round
// trip.
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

// A redisListener hears the calls that the scripts publish.
type redisListener struct {
	*redisStore

	rdb subscriber
}

// Listen follows https://redis.io/docs/latest/develop/pubsub/: a message is
// delivered at most once, and not at all while the connection is away.
func (s *redisListener) Listen(ctx context.Context, id string, heard func(), call func(waiter string)) error {
	return s.subscribe(ctx, []string{store.CallPrefix + id}, heard, call)
}

// ListenForTasks implements [store.TaskListener].
func (s *redisListener) ListenForTasks(ctx context.Context, groups []string, heard func(), call func(message string)) error {
	channels := make([]string, len(groups))
	for i, group := range groups {
		channels[i] = store.TaskPrefix + group
	}
	return s.subscribe(ctx, channels, heard, call)
}

func (s *redisListener) subscribe(ctx context.Context, channels []string, heard func(), call func(message string)) error {
	const checkEvery = time.Second // a ping, so that a connection that is dead is made anew
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
				call(m.Payload)
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
