//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// revoke revokes the lease of a task, most often of one that has run for longer than most do. Now
// and then nobody holds the lock, or two operators revoke the lease in a row.
func (o *operator) revoke(ctx context.Context, r *rand.Rand, fault *Fault) {
	names := Things()
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	free, short, both := r.IntN(8) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	precise := r.IntN(2) == 0 // as lockctl does, which names the lease that it has shown
	resource, fence := o.choose(ctx, names, free, short)
	fault.Resource = resource
	if !precise {
		fence = 0
	}
	operators := []string{"alice"}
	if both {
		operators = append(operators, "bob")
	}
	for _, by := range operators {
		fault.Revocations = append(fault.Revocations, o.call(ctx, queue.Revocation{
			Resource: resource, Fence: fence, By: by, Reason: fmt.Sprintf("wants it at %v", Now()),
		}))
	}
}

// choose returns the first resource that is as wanted, with the fence of its lease: free, or held by
// a task that has run for long, or perhaps for a short time. If there is none, choose returns any
// lease, or else any resource.
func (o *operator) choose(ctx context.Context, names []string, free, short bool) (resource string, fence int64) {
	const long = 300 * time.Millisecond // most tasks take less, also on a busy machine
	resource = names[0]
	for _, name := range names {
		value, err := o.rdb.Get(ctx, "lock:"+name).Result()
		if free && value == "" && (err == nil || errors.Is(err, redis.Nil)) {
			return name, 0
		}
		if free || !strings.HasPrefix(value, "siding:") || strings.HasPrefix(value, "siding:revoked-") {
			continue
		}
		// The fence is the time of the grant, in µs.
		text := o.rdb.Get(ctx, "{lock:"+name+"}:fence").Val()
		last, err := strconv.ParseInt(strings.TrimSuffix(text, "*"), 10, 64)
		if err == nil {
			resource, fence = name, last
		}
		if err == nil && (short || time.Since(time.UnixMicro(last)) > long) {
			break
		}
	}
	return resource, fence
}

// call revokes a lease, and finds out which one that was.
func (o *operator) call(ctx context.Context, r queue.Revocation) Revocation {
	call := Revocation{Start: Now()}
	_, err := queue.Revoke(ctx, o.rdb, r)
	call.End = Now()
	before := errors.Is(err, queue.ErrRevoked) // another call has done it, and the record is of that one
	switch {
	case err == nil, before:
		call.Outcome, call.Fence = WasRevoked, r.Fence
	case errors.Is(err, queue.ErrNotHeld):
		call.Outcome = WasFree
	case errors.Is(err, queue.ErrOtherHolder):
		call.Outcome = WasOthers
	default:
		call.Outcome = WasNoAnswer
	}
	if call.Outcome == WasRevoked && call.Fence == 0 {
		var record struct {
			Reason string `redis:"reason"`
			Fence  int64  `redis:"fence"`
		}
		err := o.rdb.HMGet(ctx, "{lock:"+r.Resource+"}:revoked", "reason", "fence").Scan(&record)
		if err == nil && (before || record.Reason == r.Reason) { // else a failover has forgotten it
			call.Fence = record.Fence
		}
	}
	return call
}
