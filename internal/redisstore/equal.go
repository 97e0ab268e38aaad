package redisstore

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed equal.lua
	equalSource string
	equalScript = redis.NewScript(equalSource)
)

// A Waiter is in the wait queue of a lock, and may have equals.
type Waiter struct {
	Key  string // of the lock
	Name string
	Came int64 // by Redis' clock in µs

	Equal  string        // what is the same for all its equals; "" for a waiter that has none
	TTL    time.Duration // for how long it is registered as the one that waits
	Gone   string        // an equal one that does not wait any more, whatever the wait queue says; or ""
	Most   int           // it is not registered if more wait, with it; 0 for any number
	Ticket int64         // that the waiter gets in place of its own if it is registered; 0 to keep it
}

// Others are those who wait with a [Waiter].
type Others struct {
	Now     time.Time
	Waiting int // how many wait, with the one that asks

	// Equal is the equal one that is registered, "" if that is the one that asks.
	Equal  string
	Ticket int64 // of Equal
	Came   int64 // when Equal came
}

// Others returns who waits, and registers w unless an equal one is.
func (w Waiter) Others(ctx context.Context, rdb redis.Scripter) (Others, error) {
	tag := "{" + w.Key + "}"
	keys := []string{tag + ":queue", tag + ":paused", tag + ":queue"}
	ttl := int64(0)
	if w.Equal != "" {
		sum := sha256.Sum256([]byte(w.Equal))
		keys[2], ttl = tag+":equal:"+hex.EncodeToString(sum[:16]), w.TTL.Milliseconds()
	}
	r := newReply(equalScript.Run(ctx, rdb, keys, w.Name, w.Came, ttl, w.Gone, strconv.FormatInt(w.Ticket, 10), w.Most).Result())
	others := Others{Now: usTime(r.number()), Waiting: int(r.number()), Equal: r.text(), Ticket: r.number(), Came: r.number()}
	return others, r.err
}
