package lockredis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

var revokeScript = Script(luaFiles, "revoke")

// RecordRetention is how long the record of a revocation is kept.
const RecordRetention = 7 * 24 * time.Hour

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
	Free    RevokeResult = "free"   // nobody holds the lock
	Other   RevokeResult = "other"  // another lease or program holds it
	Before  RevokeResult = "before" // an earlier call has revoked it, and its holder has not returned
)

// Revoke takes a lock from its holder; see revoke.lua. It returns the holder's name, and after how long the lock is free at
// the latest, and with [Before] who has revoked it. The holder learns of it when it renews its lease, or when it returns.
func Revoke(ctx context.Context, rdb redis.Scripter, r Revocation) (outcome RevokeResult, holder string, left time.Duration, by string, err error) {
	h := r.Handoff
	reply := redisreply.NewReader(revokeScript.Run(ctx, rdb, []string{r.Key}, h.Nonce, r.Fence, r.By, r.Reason, ms(RecordRetention),
		ms(h.Timeout), ms(h.QueueTTL), flag(IsCluster(rdb)), store.ForeignHolder).Result())
	outcome, holder, left, by = RevokeResult(reply.Text()), reply.Text(), msOf(reply), reply.Text()
	return outcome, holder, left, by, reply.Err()
}

// RevokedBy returns who has revoked the lease of the lock of key with a fence, and why; "" if nobody has.
func RevokedBy(ctx context.Context, rdb redis.HashCmdable, key string, fence int64) (by, reason string, err error) {
	record, err := rdb.HMGet(ctx, store.Beside(store.LockOf(key), "revoked"), "fence", "by", "reason").Result()
	if err != nil {
		return "", "", fmt.Errorf("lockredis: %w", err)
	}
	if record[0] == strconv.FormatInt(fence, 10) {
		by, _ = record[1].(string)
		reason, _ = record[2].(string)
	}
	return by, reason, nil
}
