package lease

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/sidingq/siding/internal/store"
)

// A Config has the fields of lock.Config, which says what they mean.
type Config struct {
	Prefix         string
	TTL            time.Duration
	RenewEvery     time.Duration
	SafetyMargin   time.Duration
	HandoffTimeout time.Duration
	FenceRetention time.Duration
}

// KeyPrefix is what all keys of locks begin with.
func (c Config) KeyPrefix() string {
	if c.Prefix == store.NoPrefix {
		return ""
	}
	return c.Prefix
}

// FenceTTL is how long a fencing token is remembered after an acquire or a renewal. That is the
// time of the lease, and then FenceRetention.
func (c Config) FenceTTL() time.Duration { return c.TTL + c.FenceRetention }

// QueueTTL is how long a wait queue to which nobody comes is remembered, if none of those in it was told
// to come later. A resource is marked as reserved for as long. With the wait queue go its order and the
// wake-ups, not the waiters: each tries again when the lock has run out.
func (c Config) QueueTTL() time.Duration {
	return 3*time.Hour + 2*c.TTL + c.HandoffTimeout + c.FenceRetention
}

// trusted is how long a lease is valid after the sending of a call that was answered.
func (c Config) trusted() time.Duration { return c.TTL - c.SafetyMargin }

// WithTTL returns c with another TTL, and in proportion to that another RenewEvery and SafetyMargin.
// 0 changes nothing.
func (c Config) WithTTL(ttl time.Duration) Config {
	if ttl == 0 {
		return c
	}
	scale := float64(ttl) / float64(c.TTL)
	c.TTL = ttl
	c.RenewEvery = max(time.Millisecond, time.Duration(scale*float64(c.RenewEvery)))
	c.SafetyMargin = max(time.Millisecond, time.Duration(scale*float64(c.SafetyMargin)))
	return c
}

// Defaults returns c with its zero fields filled in.
func (c Config) Defaults() Config {
	c.Prefix = cmp.Or(c.Prefix, store.DefaultPrefix)
	c.TTL = cmp.Or(c.TTL, 15*time.Second)
	c.RenewEvery = cmp.Or(c.RenewEvery, c.TTL/3)
	c.SafetyMargin = cmp.Or(c.SafetyMargin, c.TTL/15)
	c.HandoffTimeout = cmp.Or(c.HandoffTimeout, time.Second)
	c.FenceRetention = cmp.Or(c.FenceRetention, time.Minute)
	return c
}

// Validate returns an error that names the first field whose value would break a guarantee. Zero
// fields stand for their defaults.
func (c Config) Validate() error {
	c = c.Defaults()
	if strings.ContainsAny(c.Prefix, "{}") && c.Prefix != store.NoPrefix {
		return fmt.Errorf("lock: prefix: braces would change the Redis Cluster slot of companion keys, have %q", c.Prefix)
	}
	if strings.ContainsFunc(c.Prefix, unicode.IsControl) {
		return fmt.Errorf("lock: prefix: want no control characters, have %q", c.Prefix)
	}
	if !store.PrefixIsFree(c.Prefix) {
		return fmt.Errorf("lock: prefix: want one that no key of Siding's or asynq's own begins with, have %q", c.Prefix)
	}
	// Redis is told whole milliseconds, rounded down. A safety margin of one covers what the TTL
	// may lose by that.
	for _, f := range []struct {
		name        string
		least, have time.Duration
	}{
		{"ttl", 100 * time.Millisecond, c.TTL},
		{"renew every", time.Millisecond, c.RenewEvery},
		{"safety margin", time.Millisecond, c.SafetyMargin},
		{"handoff timeout", time.Millisecond, c.HandoffTimeout},
		{"fence retention", time.Millisecond, c.FenceRetention},
	} {
		if f.have < f.least || f.have > 24*time.Hour {
			return fmt.Errorf("lock: %s: want %v to 24h, have %v", f.name, f.least, f.have)
		}
	}
	if c.SafetyMargin >= c.TTL {
		return fmt.Errorf("lock: safety margin: want less than ttl (%v), have %v", c.TTL, c.SafetyMargin)
	}
	// Two renewals must fit into the trust window, so that the second can make up for a first that
	// failed.
	if 2*c.RenewEvery > c.trusted() {
		return fmt.Errorf("lock: renew every: want at most half of ttl - safety margin (%v), have %v", c.trusted()/2, c.RenewEvery)
	}
	return nil
}
