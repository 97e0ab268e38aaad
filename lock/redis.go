package lock

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each script is one file with its own contract at the top; line.lua is what
// three of them share.
var (
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

	acquireScript = redis.NewScript(lineSource + acquireSource)
	renewScript   = redis.NewScript(renewSource)
	releaseScript = redis.NewScript(lineSource + releaseSource)
	leaveScript   = redis.NewScript(lineSource + leaveSource)
	calledScript  = redis.NewScript(calledSource)
)

// reservedPrefix begins the value of a lock that is kept for a waiter.
const reservedPrefix = "siding-reserved:"

type redisStore struct {
	rdb     redis.Scripter
	cluster bool
}

// Redis returns a [Store] on rdb: a client of a single node, of Sentinel or of a
// Cluster, which it does not close. A client that can subscribe makes it a
// [Listener], too; but a Ring does not, as it would listen on another server than
// the one that has the lock. A Cluster is known by its type: behind a wrapper of
// *redis.ClusterClient some of those who wait in line are taken to be gone, and
// come by their timers, though in their old place. A user with an ACL needs the
// channels siding-call:*, to wait in line and to call those who do.
//
// go-redis never interrupts a call when its context is cancelled, and at the
// context's deadline only with ContextTimeoutEnabled; a call to a Redis that hangs
// otherwise returns after the client's ReadTimeout, once for each of its retries.
// No guarantee rests on that, but how soon an Acquire returns does.
func Redis(rdb redis.Scripter) Store {
	_, cluster := rdb.(*redis.ClusterClient)
	store := &redisStore{rdb: rdb, cluster: cluster}
	_, ring := rdb.(*redis.Ring)
	if rdb, ok := rdb.(subscriber); ok && !ring {
		return &redisListener{redisStore: store, rdb: rdb}
	}
	return store
}

// redisKeys are the Redis keys of one lock: its own, its last grant and its
// line. The lock's own key has no braces, so all of it is hashed; the
// companions name it as their hash tag and so live in the same Redis Cluster slot.
func redisKeys(key string) []string {
	return []string{key, "{" + key + "}:fence", "{" + key + "}:line"}
}

func reservedBegin(nonce string) string { return reservedPrefix + nonce + ":" }

func (s *redisStore) Acquire(ctx context.Context, c Claim) (Answer, error) {
	r := newReply(acquireScript.Run(ctx, s.rdb, redisKeys(c.Key),
		c.Token, ms(c.TTL), ms(c.Keep), c.Waiter, c.Waited.Microseconds(),
		flag(c.Line.ByHand), flag(s.cluster), reservedBegin(c.Line.Nonce), ms(c.Line.Grace), ms(c.Line.Keep)).Result())
	if r.number() == 1 {
		return Answer{Fence: r.number(), HandOff: r.microseconds()}, r.err
	}
	var a Answer
	a.Holder = r.text()
	a.Reserved = strings.HasPrefix(a.Holder, reservedPrefix)
	a.Left = time.Duration(r.number()) * time.Millisecond
	a.LastFence = r.number()
	a.Place, a.Ticket, a.Waited = int(r.number()), r.number(), r.microseconds()
	if next := r.turn(); next.Value != "" {
		a.Next = next
	}
	return a, r.err
}

func (s *redisStore) Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error {
	ours, err := renewScript.Run(ctx, s.rdb, redisKeys(key)[:2], token, ms(ttl), ms(keep)).Int()
	if err == nil && ours == 0 {
		return ErrLost
	}
	return err
}

func (s *redisStore) Release(ctx context.Context, key, token string, line Line) (*Turn, error) {
	r := newReply(releaseScript.Run(ctx, s.rdb, redisKeys(key), token,
		flag(line.ByHand), flag(s.cluster), reservedBegin(line.Nonce), ms(line.Grace), ms(line.Keep)).Result())
	return r.passedOn()
}

func (s *redisStore) Leave(ctx context.Context, key, waiter, value string, line Line) (*Turn, error) {
	r := newReply(leaveScript.Run(ctx, s.rdb, redisKeys(key), waiter, value,
		flag(line.ByHand), flag(s.cluster), reservedBegin(line.Nonce), ms(line.Grace), ms(line.Keep)).Result())
	return r.passedOn()
}

func (s *redisStore) Called(ctx context.Context, key string, turn Turn) error {
	k := redisKeys(key)
	return calledScript.Run(ctx, s.rdb, []string{k[0], k[2]}, turn.Waiter, turn.Value).Err()
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
	const checkEvery = time.Second // a ping, so that a connection that is dead is made anew
	pubsub := s.rdb.Subscribe(ctx, callPrefix+id)
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
