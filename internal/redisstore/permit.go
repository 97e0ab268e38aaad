package redisstore

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed holders.lua
	holdersSource string
	//go:embed next_start.lua
	nextStartSource string

	holdersScript   = redis.NewScript(holdersSource + "return holders_of(KEYS[1], KEYS[2])")
	nextStartScript = redis.NewScript(takeSource + permitsSource + nextStartSource)
)

// A Permit of a lock with a rule is held, or reserved for a waiter.
type Permit struct {
	Number   int
	Reserved bool
	Name     string // of the holder, or of the waiter
	Fence    int64  // of the holder; 0 for a reservation
	Left     time.Duration
	Since    time.Time // of the grant or the reservation; zero for a holder from before the rule
	Revoking bool      // the lease was revoked, and its holder has not released it yet
}

// Permits lists the permits of the lock of key that are held or reserved.
func Permits(ctx context.Context, rdb redis.Scripter, key string) ([]Permit, error) {
	r := newReply(holdersScript.Run(ctx, rdb, []string{key, permitsKey(key)}).Result())
	return r.permits(), r.err
}

// permits reads what holders.lua returns.
func (r *reply) permits() (permits []Permit) {
	for r.err == nil && len(r.fields) > 0 {
		f := r.list()
		p := Permit{Number: int(f.number()), Reserved: f.text() == "reserved", Name: f.text(), Fence: f.number()}
		p.Left, p.Revoking, p.Since = time.Duration(f.number())*time.Millisecond, f.number() == 1, usTime(f.number())
		permits, r.err = append(permits, p), f.err
	}
	return permits
}

// NextStart returns from when on rates allow another start of the lock of key, zero for now. Each reserved
// permit is a start that may come at any time. rated says that some rates hold for the lock, maybe others
// than these.
func NextStart(ctx context.Context, rdb redis.Scripter, key string, rates []store.Rate) (at time.Time, rated bool, _ error) {
	r := newReply(nextStartScript.Run(ctx, rdb, []string{key}, (&store.Rule{Rates: rates}).String()).Result())
	at, rated = usTime(r.number()), r.number() == 1
	return at, rated, r.err
}

// WithRules returns s, made by [New] or [Waking], with the rules of resources.
func WithRules(s store.Store, rules func(resource string) *store.Rule) store.Store {
	switch s := s.(type) {
	case *redisStore:
		s.rules = rules
	case *redisListener:
		s.rules = rules
	}
	return s
}

// RuleOf implements [store.Limiter].
func (s *redisStore) RuleOf(resource string) *store.Rule {
	if s.rules == nil {
		return nil
	}
	return s.rules(resource)
}

// Holders implements [store.Limiter].
func (s *redisStore) Holders(ctx context.Context, key string) ([]string, error) {
	permits, err := Permits(ctx, s.rdb, key)
	names := make([]string, len(permits))
	for i, p := range permits {
		names[i] = p.Name
	}
	return names, err
}

// permitsKey is the hash of the permits of a lock that are held or reserved.
func permitsKey(key string) string { return "{" + key + "}:permits" }
