// Package redisstore is the store on Redis: it keeps locks, their wait queues and their fences.
package redisstore

import (
	"context"
	_ "embed"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// Each script is one file, and its contract is at the top. Some of the scripts share take.lua,
// join.lua, permits.lua and queue.lua.
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
	//go:embed permits.lua
	permitsSource string
	//go:embed acquire_permit.lua
	acquirePermitSource string
	//go:embed renew_permit.lua
	renewPermitSource string
	//go:embed sweep_permits.lua
	sweepPermitsSource string

	renewScript       = redis.NewScript(renewSource)
	confirmScript     = redis.NewScript(confirmSource)
	missingScript     = redis.NewScript(missingSource)
	renewPermitScript = redis.NewScript(takeSource + permitsSource + renewPermitSource)
)

// handoffScripts are the scripts with queue.lua in them.
type handoffScripts struct{ acquire, acquirePermit, release, leave, sweep, sweepPermits *redis.Script }

// noWaking leaves it to the client to wake the waiters who do not listen.
const noWaking = "local wake_waiter\n"

// scriptsWith returns the scripts that wake waiters with wake.
func scriptsWith(wake string) handoffScripts {
	with := func(source string) *redis.Script { return redis.NewScript(withParts(source, wake)) }
	return handoffScripts{
		acquire: with(acquireSource), acquirePermit: with(acquirePermitSource), release: with(releaseSource),
		leave: with(leaveSource), sweep: with(sweepSource), sweepPermits: with(sweepPermitsSource),
	}
}

// withParts replaces the names of files in parentheses by the files. wake and permits.lua come before
// queue.lua.
func withParts(source, wake string) string {
	return strings.NewReplacer("-- (take.lua)\n", takeSource, "-- (join.lua)\n", joinSource, "-- (queue.lua)\n", wake+permitsSource+queueSource).Replace(source)
}

// reservedPrefix begins the value of a lock that is reserved for a waiter.
const reservedPrefix = "siding-reserved:"

type redisStore struct {
	rdb     redis.Scripter
	scripts handoffScripts
	cluster bool
	rules   func(resource string) *store.Rule // nil for none
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
//	wake_waiter(waiter, ticket, start, again)
//
// wake_waiter makes the waiter come at once, and returns 'woken'. The function returns 'gone' if
// the waiter cannot come any more, and 'paused' if the waiter cannot come for now. It returns nil
// if the client has to wake the waiter. If start is not nil, it is a table that ends with
// Start.Args. Then wake_waiter may start the waiter. If so, it returns 'started' and a table: the
// holder's name, and the fields of Reservation.Reply. If it fails after it has written, the lock stays
// taken for its TTL.
//
// If again is true, wake_waiter changes nothing. It returns what an earlier call with this start
// returned, if that has started the waiter and the waiter is still active. Else it returns nil.
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
//
// The keys of a permit are those of its lock, but for the first, see permits.lua.
func Keys(key string) []string {
	lock := store.LockOf(key)
	return []string{key, "{" + lock + "}:fence", "{" + lock + "}:queue", "{" + lock + "}:paused"}
}

func reservedBegin(nonce string) string { return reservedPrefix + nonce + ":" }

func (s *redisStore) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	argv := []any{
		c.Token, ms(c.TTL), ms(c.FenceTTL), c.Waiter, c.Waited.Microseconds(),
		flag(c.Handoff.Stepwise), flag(s.cluster), reservedBegin(c.Handoff.Nonce), ms(c.Handoff.Timeout), ms(c.Handoff.QueueTTL), c.Came,
	}
	script := s.scripts.acquire
	if c.Rule != nil {
		script, argv = s.scripts.acquirePermit, append(argv, c.Rule.String())
	}
	r := newReply(script.Run(ctx, s.rdb, Keys(c.Key), argv...).Result())
	if r.number() == 1 {
		a := store.Result{Taken: r.err == nil, Fence: r.number(), HandOff: time.Duration(r.number()) * time.Microsecond, From: r.text()}
		if c.Rule != nil {
			a.Permit = store.PermitKey(c.Key, strconv.FormatInt(r.number(), 10))
		}
		return a, r.err
	}
	a := r.busy()
	next := r.reservation(c.Key)
	if c.Rule != nil {
		next.Key, a.Holders, a.Later = r.text(), int(r.number()), r.later()
	}
	if next.Value != "" {
		a.Next = next
	}
	return a, r.err
}

// inPermit is the answer of renew.lua for a lock that has permits.
const inPermit = -1

func (s *redisStore) Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	lock, ours := store.LockOf(key), inPermit
	var err error
	if lock == key {
		ours, err = renewScript.Run(ctx, s.rdb, Keys(key)[:2], token, ms(ttl), ms(fenceTTL)).Int()
	}
	if err == nil && ours == inPermit {
		keys := append(Keys(key)[:2], lock, permitsKey(lock))
		ours, err = renewPermitScript.Run(ctx, s.rdb, keys, token, ms(ttl), ms(fenceTTL)).Int()
	}
	if err == nil && ours == 0 {
		return store.ErrLost
	}
	return err
}

func (s *redisStore) Release(ctx context.Context, key, token string, r store.Release) (*store.Reservation, error) {
	argv := []any{token, flag(r.Stepwise), flag(s.cluster), reservedBegin(r.Nonce), ms(r.Timeout), ms(r.QueueTTL), r.For, r.Fence, r.Rule.String()}
	if start := r.Start; start != nil && !s.cluster {
		argv = append(append(argv, start.ID, ms(start.TTL), ms(start.FenceTTL)), start.Args...)
	}
	keys := append(Keys(key), "{"+store.LockOf(key)+"}:released:"+r.Nonce)
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
		flag(l.Stepwise), flag(s.cluster), reservedBegin(l.Nonce), ms(l.Timeout), ms(l.QueueTTL), flag(l.Paused), l.Rule.String(), l.Ticket).Result())
	return r.handedOff(key)
}

func (s *redisStore) Confirm(ctx context.Context, r store.Reservation) error {
	k := Keys(r.Key)
	return confirmScript.Run(ctx, s.rdb, []string{k[0], k[2]}, r.Waiter, r.Value).Err()
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
