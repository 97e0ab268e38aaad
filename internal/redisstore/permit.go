package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
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
func NextStart(ctx context.Context, rdb redis.UniversalClient, l Looked, key string, rates []store.Rate) (at time.Time, rated bool, _ error) {
	reserved := 0
	for _, p := range l.Permits {
		if p.Reserved {
			reserved++
		}
	}
	starts := "{" + key + "}:starts"
	pipe := rdb.Pipeline()
	last := pipe.LIndex(ctx, starts, 0)
	before := make([]*redis.StringCmd, len(rates))
	for n, rate := range rates {
		before[n] = pipe.LIndex(ctx, starts, int64(max(0, rate.Starts-reserved-1)))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return time.Time{}, false, err
	}
	for n, rate := range rates {
		us, err := before[n].Int64()
		next := time.UnixMicro(us).Add(rate.Period)
		if rate.Starts <= reserved {
			next, err = l.Now.Add(rate.Period), nil
		}
		if err == nil && next.After(l.Now) && next.After(at) {
			at = next
		}
	}
	return at, last.Err() == nil, nil
}
