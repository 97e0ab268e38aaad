package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// Sweep implements [store.Sweeper].
func (s *redisStore) Sweep(ctx context.Context, locks []store.Ruled, resumed bool, h store.Handoff) ([]store.Swept, error) {
	argv := []any{flag(h.Stepwise), flag(s.cluster), reservedBegin(h.Nonce), ms(h.Timeout), ms(h.QueueTTL), flag(resumed), ms(h.Overdue)}
	found := make([]store.Swept, len(locks))
	for _, ruled := range []bool{false, true} {
		script, read := s.scripts.sweep, sweptOf
		if ruled {
			script, read = s.scripts.sweepPermits, permitsSweptOf
		}
		var steps []step
		var at []int // the index of each step in locks
		for i, l := range locks {
			if (l.Rule != nil) != ruled {
				continue
			}
			one := step{keys: Keys(l.Key)}
			if ruled {
				one.argv = []any{l.Rule.String()}
			}
			steps, at = append(steps, one), append(at, i)
		}
		if len(steps) == 0 {
			continue
		}
		got, err := s.together(ctx, script, argv, steps)
		if err != nil {
			return nil, err
		}
		for i, v := range got {
			if found[at[i]], err = read(locks[at[i]].Key, v); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// nobodyWaits is what the scripts that sweep return of a lock for which nobody waits.
const nobodyWaits = -3

// sweptOf reads what sweep.lua returns of a lock.
func sweptOf(key string, v any) (store.Swept, error) {
	left, plain := v.(int64)
	if plain {
		return store.Swept{Waiting: left != nobodyWaits, Left: time.Duration(left) * time.Millisecond}, nil
	}
	r := newReply(v, nil)
	left = r.number()
	return store.Swept{Waiting: true, Left: time.Duration(left) * time.Millisecond, Next: []*store.Reservation{r.reservation(key)}}, r.err
}

// permitsSweptOf reads what sweep_permits.lua returns of a lock.
func permitsSweptOf(_ string, v any) (store.Swept, error) {
	r := newReply(v, nil)
	left := r.number()
	swept := store.Swept{Waiting: left != nobodyWaits, Left: time.Duration(left) * time.Millisecond, Later: r.later()}
	for r.err == nil && len(r.fields) > 0 {
		swept.Next = append(swept.Next, r.reservation(r.text()))
	}
	return swept, r.err
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
