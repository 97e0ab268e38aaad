package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed revoke.lua
	revokeSource string
	//go:embed revoked.lua
	revokedSource string

	revokedScript = redis.NewScript(revokedSource)
)

// RecordRetention is how long the record of a revocation is kept.
const RecordRetention = 7 * 24 * time.Hour

// RecordKey is the hash that has the record of the last revocation of a lock: calls, at (µs), by,
// reason, holder, fence.
func RecordKey(key string) string { return "{" + key + "}:revoked" }

// A Revocation takes a lock from its holder.
type Revocation struct {
	Key        string // of the lock, or of a permit of it
	Fence      int64  // of the lease that is meant; 0 for whoever holds the lock, be it another program
	By, Reason string
	Handoff    store.Handoff // its nonce is the name of the call
}

// A RevokeResult is the outcome of a revocation.
type RevokeResult string

// The outcomes of [Revoke].
const (
	Revoked RevokeResult = "revoked"
	Free    RevokeResult = "free"  // nobody holds the lock
	Other   RevokeResult = "other" // another lease or program holds it
)

// Revoke takes a lock from its holder; see revoke.lua. wake is that of [Waking]. It returns the holder's
// name, and after how long the lock is free at the latest.
func Revoke(ctx context.Context, rdb redis.Scripter, wake string, r Revocation) (outcome RevokeResult, holder string, left time.Duration, err error) {
	_, cluster := rdb.(*redis.ClusterClient)
	if cluster {
		wake = noWaking
	}
	script := redis.NewScript(fmt.Sprintf("local FOREIGN = '%s'\n", store.ForeignHolder) + withParts(revokeSource, wake))
	reply := newReply(script.Run(ctx, rdb, append(Keys(r.Key), RecordKey(store.LockOf(r.Key))), r.Handoff.Nonce, r.Fence, r.By, r.Reason, ms(RecordRetention),
		flag(cluster), reservedBegin(r.Handoff.Nonce), ms(r.Handoff.Timeout), ms(r.Handoff.QueueTTL)).Result())
	outcome, holder, left = RevokeResult(reply.text()), reply.text(), time.Duration(reply.number())*time.Millisecond
	return outcome, holder, left, reply.err
}

// RevokedBy returns who has revoked the lease with a fence, and why; "" if nobody has.
func RevokedBy(ctx context.Context, rdb redis.Scripter, key string, fence int64) (by, reason string, err error) {
	reply := newReply(revokedScript.Run(ctx, rdb, []string{RecordKey(key)}, fence).Result())
	by, reason = reply.text(), reply.text()
	return by, reason, reply.err
}
