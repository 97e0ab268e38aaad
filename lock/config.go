package lock

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Config configures a [Locker]. The zero value works. All times are 1 ms to 24 h.
type Config struct {
	// Prefix is put before the resource to make the lock's key. All programs
	// that are to exclude one another need the same. Defaults to "lock:".
	Prefix string
	// TTL is how long a lock lives without renewal, at least 100 ms. Defaults to 15 s.
	TTL time.Duration
	// RenewEvery is how often a kept lease is renewed. Defaults to TTL / 3.
	RenewEvery time.Duration
	// Margin is how long before the server may expire a lock its holder gives
	// up; it covers the difference in speed of the two clocks and the time that
	// cancelled work needs to notice. Defaults to TTL / 15.
	Margin time.Duration
	// Grace is how long a lock that was handed off stays reserved for the next
	// in line. Defaults to 5 s.
	Grace time.Duration
	// FenceRetention is how long the last fencing token of an idle resource is
	// remembered: the step back of the store's clock that is tolerated.
	// Each idle resource costs about 130 bytes for so long. Defaults to 1 min.
	FenceRetention time.Duration
}

// grantKeep is how long the fencing token is kept from an acquire or renewal on:
// through the lease itself and the configured time after it.
func (c Config) grantKeep() time.Duration { return c.TTL + c.FenceRetention }

// lineKeep is how long a line survives without anybody coming to its door, and
// how long a resource is marked as reserved. A lost line loses the order and the
// call, not the waiters: a goroutine looks when the lock has run out, and a parked
// task comes by itself within two hours. So a line is kept for longer.
func (c Config) lineKeep() time.Duration {
	return 3*time.Hour + 2*c.TTL + c.Grace + c.FenceRetention
}

// Defaults returns c with its zero fields filled in.
func (c Config) Defaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "lock:")
	c.TTL = cmp.Or(c.TTL, 15*time.Second)
	c.RenewEvery = cmp.Or(c.RenewEvery, c.TTL/3)
	c.Margin = cmp.Or(c.Margin, c.TTL/15)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.FenceRetention = cmp.Or(c.FenceRetention, time.Minute)
	return c
}

// Validate returns an error that names the first field whose value would break
// a guarantee. Zero fields stand for their defaults.
func (c Config) Validate() error {
	c = c.Defaults()
	if strings.ContainsAny(c.Prefix, "{}") {
		return fmt.Errorf("lock: prefix: braces would change the Redis Cluster slot of companion keys, have %q", c.Prefix)
	}
	if strings.ContainsFunc(c.Prefix, unicode.IsControl) {
		return fmt.Errorf("lock: prefix: want no control characters, have %q", c.Prefix)
	}
	// Redis is told whole milliseconds, rounded down. A margin of one covers what
	// the TTL may lose by that; a grace of less would be none.
	for _, f := range []struct {
		name        string
		least, have time.Duration
	}{
		{"ttl", 100 * time.Millisecond, c.TTL},
		{"renew every", time.Millisecond, c.RenewEvery},
		{"margin", time.Millisecond, c.Margin},
		{"grace", time.Millisecond, c.Grace},
		{"fence retention", time.Millisecond, c.FenceRetention},
	} {
		if f.have < f.least || f.have > 24*time.Hour {
			return fmt.Errorf("lock: %s: want %v to 24h, have %v", f.name, f.least, f.have)
		}
	}
	if c.Margin >= c.TTL {
		return fmt.Errorf("lock: margin: want less than ttl (%v), have %v", c.TTL, c.Margin)
	}
	// Two renewals must fit into the time that is trusted, so that one that
	// fails can be made up for by the next.
	if trusted := c.TTL - c.Margin; 2*c.RenewEvery > trusted {
		return fmt.Errorf("lock: renew every: want at most half of ttl - margin (%v), have %v", trusted/2, c.RenewEvery)
	}
	return nil
}
