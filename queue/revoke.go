package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// The errors of [Revoke] after which nothing has changed.
var (
	// ErrNotHeld says that nobody holds the lock. There is nothing to release.
	ErrNotHeld = errors.New("queue: nobody holds the lock")
	// ErrOtherHolder says that the lease of [Revocation.Fence] has ended, and another lease or program
	// holds the lock. Look at the new holder before you release that one.
	ErrOtherHolder = errors.New("queue: another lease or program holds the lock")
	// ErrSeveralHolders says that several hold the lock, and [Revocation.Fence] does not say which is meant.
	// The error lists them with their fences.
	ErrSeveralHolders = errors.New("queue: several hold the lock, and a fence has to say which is meant")
	// ErrRevoked says that the lock was revoked before, and its holder has not returned yet. The record of who did
	// it and why stays that of the first call. The error says who.
	ErrRevoked = errors.New("queue: the lock was revoked before")
	// ErrExternalStore says that the lock is in an external store, not on the Redis of the tasks. Stop the
	// holder instead: its lease expires.
	ErrExternalStore = errors.New("queue: the lock is in an external store")
)

// A Revocation says which lock is taken from its holder, by whom, and why.
type Revocation struct {
	Resource string
	// Prefix is the Prefix of the servers' [lock.Config]. Defaults to "lock:".
	Prefix string
	// Fence is the fencing token of the lease to revoke. So a later holder keeps its lock. 0 means
	// whoever holds the lock when the call reaches Redis. A program on the plain protocol has no
	// fence, so only 0 takes its lock. If several hold a lock with a [Limit], Fence says which of them
	// loses it.
	Fence int64
	// By and Reason say who takes the lock, and why. Both are required, of at most 200 and 1,000
	// bytes. Redis keeps them for a week. Operators see them.
	By     string
	Reason string
}

// Revoked is the outcome of [Revoke].
type Revoked struct {
	// Holder describes the holder, as in [lock.BusyError].
	Holder string
	// FreeWithin is the time after which the holder's lock ends at the latest. It is 0 if the lock is
	// already free.
	FreeWithin time.Duration
}

// Revoke takes a lock from its holder, for an operator. The holder cannot renew its lease any more.
// Its context ends at its next renewal, by default within a third of the TTL. The lock goes to the
// next waiter when the holder has returned, or when the TTL is over. So there are never two
// holders. The next fencing token is higher.
//
// A task whose lock was revoked runs again after a second or more, behind those who wait, or before them if its
// [Policy.OnFailure] says so. That uses no retry, but counts as one of [Recovery.Losses]. The log of the task's
// server and the task's last error say who revoked the lock, and why.
//
// A program on the plain protocol does not learn that it has lost its lock. Its lock goes to the next
// waiter at once. The caller has to know that the program does not work on the resource any more.
//
// The client rdb must reach the Redis of the tasks. After an error of Redis the lock may have been
// revoked or not.
func Revoke(ctx context.Context, rdb redis.UniversalClient, r Revocation) (Revoked, error) {
	if err := cmp.Or(checkContext(ctx), r.validate(rdb)); err != nil {
		return Revoked{}, err
	}
	tasks := lockredis.New(rdb)
	locks, err := lease.New(tasks, lease.Config{Prefix: r.Prefix})
	if err != nil {
		return Revoked{}, err
	}
	defer locks.Close()
	call := lockredis.Revocation{
		Key: locks.Key(r.Resource), Fence: r.Fence, By: r.By, Reason: r.Reason, Handoff: locks.Handoff(uuid.NewString()),
	}
	outcome, holder, left, by, err := lockredis.Revoke(ctx, rdb, call)
	if err == nil && outcome == lockredis.Free { // or its holders have permits
		key, fence, refused := r.permit(ctx, rdb, call.Key)
		if refused != nil {
			return Revoked{}, refused
		}
		if key != "" {
			call.Key, call.Fence = key, fence
			outcome, holder, left, by, err = lockredis.Revoke(ctx, rdb, call)
		}
	}
	if err != nil {
		return Revoked{}, fmt.Errorf("queue: revoke %s: %w", r.Resource, err)
	}
	switch outcome {
	case lockredis.Revoked:
		return Revoked{holder, left}, nil
	case lockredis.Before:
		if by == "" {
			by = "somebody whose record Redis has not kept"
		}
		return Revoked{}, fmt.Errorf("%w: %s was taken from %s by %s, and is free in %v at the latest", ErrRevoked, r.Resource, holder, by, left)
	case lockredis.Other:
		return Revoked{}, fmt.Errorf("%w: %s is held by %s", ErrOtherHolder, r.Resource, holder)
	case lockredis.Free:
	}
	elsewhere, err := rdb.Exists(ctx, taskredis.WaitPrefix+locks.Key(r.Resource)).Result()
	switch {
	case err != nil:
		return Revoked{}, fmt.Errorf("queue: revoke %s: %w", r.Resource, err)
	case elsewhere > 0:
		return Revoked{}, fmt.Errorf("%w: %s", ErrExternalStore, r.Resource)
	}
	return Revoked{}, fmt.Errorf("%w: %s", ErrNotHeld, r.Resource)
}

// permit returns the key and the fence of the permit that is meant of a lock, "" if nobody holds a permit.
func (r Revocation) permit(ctx context.Context, rdb redis.UniversalClient, lock string) (key string, fence int64, _ error) {
	permits, err := lockredis.Permits(ctx, rdb, lock)
	if err != nil {
		return "", 0, fmt.Errorf("queue: revoke %s: %w", r.Resource, err)
	}
	permits = slices.DeleteFunc(permits, func(p lockredis.Permit) bool { return p.Reserved || p.Number == 0 })
	if len(permits) == 0 {
		return "", 0, nil
	}
	holders := make([]string, len(permits))
	for n, p := range permits {
		holders[n] = fmt.Sprintf("%s with fence %d", p.Name, p.Fence)
		if r.Fence > 0 && p.Fence == r.Fence || r.Fence == 0 && len(permits) == 1 {
			return store.PermitKey(lock, strconv.Itoa(p.Number)), p.Fence, nil
		}
	}
	refused := ErrOtherHolder
	if r.Fence == 0 {
		refused = ErrSeveralHolders
	}
	return "", 0, fmt.Errorf("%w: %s is held by %s", refused, r.Resource, strings.Join(holders, ", "))
}

func (r Revocation) validate(rdb redis.UniversalClient) error {
	if err := checkClient(rdb); err != nil {
		return err
	}
	if err := store.CheckResource(r.Resource); err != nil {
		return fmt.Errorf("queue: revoke: resource: %w", err)
	}
	if r.Fence < 0 {
		return fmt.Errorf("queue: revoke %s: fence: want 0 or more, have %d", r.Resource, r.Fence)
	}
	if err := checkTexts(r.By, r.Reason); err != nil {
		return fmt.Errorf("queue: revoke %s: %w", r.Resource, err)
	}
	return nil
}
