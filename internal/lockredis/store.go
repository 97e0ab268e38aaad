package lockredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

type redisStore struct {
	rdb   redis.Scripter
	do    func(ctx context.Context, key string, args ...any) (any, error)
	rules func(resource string) *store.Rule // nil for none
	late  sync.Map                          // of acquires that their callers have left: by token, what is closed when they are over
}

// New returns a [store.Store] on rdb, which it does not close; see lock.Redis. It is a [store.Limiter], and a
// [store.Listener] if rdb can subscribe to what the scripts publish.
func New(rdb redis.Scripter) store.Store { return WithRules(rdb, nil) }

// WithRules is [New] with the rules of resources, which count more than those of requests. rules returns nil for a resource
// that has none.
func WithRules(rdb redis.Scripter, rules func(resource string) *store.Rule) store.Store {
	s := &redisStore{rdb: rdb, do: caller(rdb), rules: rules}
	_, many := rdb.(*redis.Ring)
	if rdb, ok := rdb.(subscriber); ok && !many {
		return &redisListener{redisStore: s, rdb: rdb}
	}
	return s
}

// None reports whether v, such as a client or a handler, is nil, or holds a nil pointer or a nil function.
func None(v any) bool {
	switch of := reflect.ValueOf(v); of.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return of.IsNil()
	default:
		return false
	}
}

// Nothing describes a value that is [None], for an error.
func Nothing(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("a nil %T", v)
}

// IsCluster reports whether the keys of rdb are on several nodes, so a script reaches one slot.
func IsCluster(rdb redis.Scripter) bool {
	_, cluster := rdb.(*redis.ClusterClient)
	return cluster
}

// RuleOf implements [store.Limiter].
func (s *redisStore) RuleOf(resource string) *store.Rule {
	if s.rules == nil {
		return nil
	}
	return s.rules(resource)
}

func (s *redisStore) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	reply, err := s.do(ctx, c.Key, kind("acquire", c.Rule), c.Token, ms(c.TTL), ms(c.FenceTTL),
		lines(number(c.Waited.Microseconds()), c.Handoff.Nonce, number(ms(c.Handoff.Timeout)), number(ms(c.Handoff.QueueTTL)), c.Waiter))
	if late, ok := errors.AsType[*lateError](err); ok {
		s.late.Store(c.Token, late.done)
		go func() {
			<-late.done
			s.late.Delete(c.Token)
		}()
	}
	if fence, ok := reply.(string); ok { // the lock was free, and nobody waited
		r := redisreply.NewReader([]any{fence}, nil)
		return store.Result{Fence: r.Number(), Taken: r.Err() == nil}, r.Err()
	}
	r := redisreply.NewReader(reply, err)
	if r.Number() == 1 {
		a := store.Result{Taken: r.Err() == nil, Fence: r.Number()}
		if key := r.Text(); key != c.Key {
			a.Permit = key
		}
		return a, r.Err()
	}
	a := store.Result{Holder: r.Text(), Left: msOf(r)}
	a.Reserved = strings.HasPrefix(a.Holder, "siding-reserved:")
	// A fence is the time of its grant, except a rare one that had to be raised.
	a.Since = usTime(r.Number())
	a.Position, a.Holders, a.Later = int(r.Number()), int(r.Number()), msOf(r)
	return a, r.Err()
}

func (s *redisStore) Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	return lostIf0(s.do(ctx, key, "renew", token, ms(ttl), ms(fenceTTL), ""))
}

// Release is sent at once, and once more when an Acquire of its token is over that its caller has left. That may be one of a group
// which go-redis sends again, such as after a failover, and would take the lock after the first release.
func (s *redisStore) Release(ctx context.Context, key, token string, r store.Release) error {
	late, isLate := s.late.Load(token)
	release := func() error {
		return lostIf0(s.do(ctx, key, kind("release", r.Rule), token, ms(r.Timeout), ms(r.QueueTTL), lines(r.Nonce, number(r.Fence))))
	}
	err := release()
	if !isLate || err != nil && !errors.Is(err, store.ErrLost) {
		return err
	}
	over, _ := late.(<-chan struct{})
	select {
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("an acquire is under way: %w", ctx.Err())
	}
	if again := release(); !errors.Is(again, store.ErrLost) {
		return again
	}
	return err
}

func (s *redisStore) Leave(ctx context.Context, key, waiter string, l store.Leave) error {
	_, err := s.do(ctx, key, kind("leave", l.Rule), waiter, ms(l.Timeout), ms(l.QueueTTL), lines(l.Nonce))
	return err
}

// lostIf0 returns [store.ErrLost] for the answer 0.
func lostIf0(answer any, err error) error {
	switch {
	case err != nil || answer == int64(1):
		return err
	case answer == int64(0):
		return store.ErrLost
	}
	return fmt.Errorf("%w: want 0 or 1, have %T", redisreply.ErrReply, answer)
}

// kind names a call for the script, with the rule of the lock.
func kind(name string, rule *store.Rule) string {
	if rule == nil {
		return name
	}
	return name + " " + rule.String()
}

// lines are what a call needs only if others want its lock, too: one argument costs Redis less than many.
func lines(values ...string) string { return strings.Join(values, "\n") }

func number(n int64) string { return strconv.FormatInt(n, 10) }

func ms(d time.Duration) int64 { return d.Milliseconds() }

// msOf reads milliseconds.
func msOf(r *redisreply.Reader) time.Duration {
	return redisreply.Duration(float64(r.Number()), time.Millisecond)
}

// usTime returns the time of so many us, zero for none.
func usTime(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
