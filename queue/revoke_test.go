package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func (b *bundle) revocation() queue.Revocation {
	return queue.Revocation{Resource: b.resource, By: "alice", Reason: "it is stuck"}
}

// revoke has an operator take the lock of the bundle's resource.
func (b *bundle) revoke(t *testing.T) {
	t.Helper()
	must(t, errOf(queue.Revoke(t.Context(), b.rdb, b.revocation())))
}

// An operator takes the lock from a running task. Its context ends, the next task runs when the
// first one has returned and not before, and the first one runs again, and uses no retry.
func TestRevoke(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j, logs := newStage(t), &journal{}, newLogs(t)
		cfg := queue.ServerConfig{Observe: j.observe, Logger: logs.logger, Lock: lock.Config{TTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond}}
		b.serve(t, cfg, st.run)
		stuck, first := b.begin(t, st, 1, queue.Options{Retries: queue.NoRetries})
		second := b.enqueue(t, b.job(2))
		j.await(t, queue.EventParked, second, 1)

		have, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
		if err != nil || !strings.HasPrefix(have.Holder, "test:job "+first) || have.FreeWithin <= 0 || have.FreeWithin > 20*time.Second {
			t.Fatalf("want the holder and a time, have %+v, %v", have, err)
		}
		within(t, patience, "the end of the holder's context", stuck.ended)
		steadily(t, 300*time.Millisecond, "no second holder while the first is at work", func() bool { return len(st.order()) == 1 })
		returned := time.Now()
		stuck.open()
		one := j.await(t, queue.EventAcquired, first, 1)
		two := j.await(t, queue.EventAcquired, second, 1)
		wantSoon(t, returned, "want the next task at once")
		if two.Fence <= one.Fence {
			t.Errorf("fences: want them to rise, have %d and %d", one.Fence, two.Fence)
		}
		again := j.await(t, queue.EventAcquired, first, 2) // without retries it would be archived if it were charged
		j.await(t, queue.EventReleased, first, 1)
		st.wantOrder(1, 2, 1)
		if lost := j.of(queue.EventLost, ""); len(lost) != 1 || lost[0].TaskID != first || again.Fence <= one.Fence {
			t.Errorf("want one loss, have %+v", lost)
		}
		if lines := logs.lines("released by an operator"); len(lines) != 1 || !strings.Contains(lines[0], "by=alice reason=\"it is stuck\"") {
			t.Errorf("log: have %q", lines)
		}
	})
}

// A handler that returns why its context has ended uses no retry for that.
func TestHandlerReturnsTheLossOfItsLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		began, runs := make(chan struct{}), 0 // one at a time
		b.serve(t, queue.ServerConfig{Lock: lock.Config{TTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond}}, func(ctx context.Context, _ job) error {
			if runs++; runs > 1 {
				return nil
			}
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
		within(t, patience, "the holder", began)
		b.revoke(t)
		b.awaitGone(t, id) // and not archived
	})
}

// A holder that does not listen loses the lock when its TTL is over, and what it does then counts as
// lost.
func TestRevokeAHolderThatGoesOn(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	st.unsafe = true
	b.serve(t, queue.ServerConfig{Observe: j.observe, Lock: shortTimes}, st.run)
	stuck, first := b.begin(t, st, 1)
	second := b.enqueue(t, b.job(2))
	j.await(t, queue.EventParked, second, 1)
	have, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
	if err != nil || have.FreeWithin <= 0 || have.FreeWithin > shortTimes.TTL {
		t.Fatalf("want it free within %v, have %v, %v", shortTimes.TTL, have.FreeWithin, err)
	}
	j.await(t, queue.EventAcquired, second, 1)
	stuck.open()
	j.await(t, queue.EventLost, first, 1)
	b.awaitGone(t, first, second)
}

// What holds a lock without a Locker is not told, and does not keep the next waiter.
func TestRevokeAForeignHolder(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	must(t, b.rdb.Set(t.Context(), b.lockKey(), "theirs", 0).Err())
	b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
	id := b.enqueue(t, b.job(1))
	j.await(t, queue.EventParked, id, 1)
	have, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
	if err != nil || have.Holder != "another program" || have.FreeWithin != 0 {
		t.Fatalf("have %+v, %v", have, err)
	}
	b.awaitGone(t, id)
}

func (b *bundle) acquire(t *testing.T, o *lock.Options) *lock.Lease {
	t.Helper()
	l, err := b.locker.Acquire(t.Context(), b.resource, o)
	must(t, err)
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

// sendTwice sends each script twice, with something between.
type sendTwice struct {
	redis.Hook

	between func()
	answers *[]any
}

func (w *sendTwice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (w *sendTwice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *sendTwice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		err := next(ctx, cmd)
		if !ok || err != nil {
			return err
		}
		*w.answers = append(*w.answers, script.Val())
		w.between()
		err = next(ctx, cmd)
		*w.answers = append(*w.answers, script.Val())
		return err
	}
}

// A revocation that cannot work says why, and changes nothing.
func TestRevokeRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.acquire(t, &lock.Options{Holder: "the holder"})
	value := b.value(t)
	elsewhere := "res:" + uuid.NewString()
	must(t, b.rdb.Set(t.Context(), "wait:lock:"+elsewhere, "siding:x:y", time.Hour).Err())
	for name, tt := range map[string]struct {
		change func(*queue.Revocation)
		is     error
		part   string
	}{
		"no resource":         {change: func(r *queue.Revocation) { r.Resource = "" }, part: "resource"},
		"braces":              {change: func(r *queue.Revocation) { r.Resource = "{x" }, part: "resource"},
		"braces in prefix":    {change: func(r *queue.Revocation) { r.Prefix = "{x}" }, part: "prefix"},
		"nobody asks":         {change: func(r *queue.Revocation) { r.By = " " }, part: "by: want a text"},
		"no reason":           {change: func(r *queue.Revocation) { r.Reason = "" }, part: "reason: want a text"},
		"a long reason":       {change: func(r *queue.Revocation) { r.Reason = strings.Repeat("x", 1001) }, part: "reason: want at most 1000 bytes, have 1001"},
		"control characters":  {change: func(r *queue.Revocation) { r.By = "a\x1b[31m" }, part: `by: want text without control characters, have "a\x1b[31m"`},
		"not UTF-8":           {change: func(r *queue.Revocation) { r.By = "a\xff" }, part: "by: want text"},
		"a free lock":         {change: func(r *queue.Revocation) { r.Resource = "res:" + uuid.NewString() }, is: queue.ErrNotHeld},
		"another holder":      {change: func(r *queue.Revocation) { r.Fence = held.Fence() - 1 }, is: queue.ErrOtherHolder, part: "is held by the holder"},
		"in an outside store": {change: func(r *queue.Revocation) { r.Resource = elsewhere }, is: queue.ErrExternalStore, part: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.revocation()
			tt.change(&r)
			_, err := queue.Revoke(t.Context(), b.rdb, r)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("want %v and %q, have %v", tt.is, tt.part, err)
			}
			if have := b.value(t); have != value {
				t.Errorf("the lock: want %q, have %q", value, have)
			}
		})
	}
	if _, err := queue.Revoke(t.Context(), nil, b.revocation()); err == nil || !strings.Contains(err.Error(), "redis") {
		t.Errorf("without a client: have %v", err)
	}
}

// The lease that is named is revoked, and a goroutine comes next when its holder returns.
func TestRevokeForAGoroutine(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		held, locker := b.acquire(t, &lock.Options{Holder: "first", TTL: time.Minute}), newLocker(t, lock.Redis(b.rdb), lock.Config{})
		done := make(chan error, 1)
		go func() {
			done <- locker.Do(t.Context(), b.resource, &lock.Options{Wait: lock.Forever}, func(context.Context) error { return nil })
		}()
		poll.Eventually(t, "a waiter", func() bool { return b.rdb.ZCard(t.Context(), "{"+b.lockKey()+"}:queue").Val() == 1 })
		r := b.revocation()
		r.Fence = held.Fence()
		have, err := queue.Revoke(t.Context(), b.rdb, r)
		if err != nil || have.Holder != "first" || have.FreeWithin <= 0 || have.FreeWithin > time.Minute {
			t.Errorf("want it free within a minute, have %+v, %v", have, err)
		}
		if left := b.rdb.PTTL(t.Context(), b.lockKey()).Val(); left <= 0 || left > time.Minute {
			t.Errorf("want the lease's TTL kept, have %v", left)
		}
		if err := held.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("renewal: want ErrLost, have %v", err)
		}
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: want ErrLost, have %v", err)
		}
		if err := within(t, patience, "the waiter", done); err != nil {
			t.Error(err)
		}
		if next := b.acquire(t, nil); next.Fence() <= held.Fence() {
			t.Errorf("want a fence above %d, have %d", held.Fence(), next.Fence())
		}
	})
}

// Of several holders the one with the fence loses its permit, and no other. The next waiter gets the
// permit when that holder has returned, and not before.
func TestRevokeOneOfSeveralHolders(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j, logs := newStage(t), &journal{}, newLogs(t)
		st.unsafe = true // several are at work at once
		b.serve(t, queue.ServerConfig{
			Observe: j.observe, Logger: logs.logger, Limits: map[string]queue.Limit{"res:*": {Holders: 2}},
			Lock: lock.Config{TTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond},
		}, st.run)
		other, stuck := st.hold(1), st.hold(2)
		one := j.await(t, queue.EventAcquired, b.enqueue(t, b.job(1)), 1)
		first := b.enqueue(t, b.job(2), queue.Options{Retries: queue.NoRetries})
		two := j.await(t, queue.EventAcquired, first, 1)
		within(t, patience, "the holder", stuck.entered)
		third := b.enqueue(t, b.job(3))
		j.await(t, queue.EventParked, third, 1)

		_, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
		if !errors.Is(err, queue.ErrSeveralHolders) || !strings.Contains(err.Error(), fmt.Sprint(" with fence ", one.Fence)) || !strings.Contains(err.Error(), fmt.Sprint("test:job ", first, " on ")) {
			t.Errorf("want both holders with their fences, have %v", err)
		}
		r := b.revocation()
		r.Fence = 7
		if _, err := queue.Revoke(t.Context(), b.rdb, r); !errors.Is(err, queue.ErrOtherHolder) {
			t.Errorf("want ErrOtherHolder, have %v", err)
		}
		r.Fence = two.Fence
		have, err := queue.Revoke(t.Context(), b.rdb, r)
		if err != nil || !strings.HasPrefix(have.Holder, "test:job "+first) || have.FreeWithin <= 0 || have.FreeWithin > 20*time.Second {
			t.Fatalf("want the holder and a time, have %+v, %v", have, err)
		}
		within(t, patience, "the end of the holder's context", stuck.ended)
		steadily(t, 300*time.Millisecond, "no third holder while two are at work", func() bool { return len(j.of(queue.EventAcquired, third)) == 0 })
		if record, err := b.rdb.HGet(t.Context(), "{"+b.lockKey()+"}:revoked", "fence").Int64(); err != nil || record != two.Fence {
			t.Errorf("want the record under the key of the lock, have fence %d, %v", record, err)
		}
		stuck.open()
		next := j.await(t, queue.EventAcquired, third, 1)
		again := j.await(t, queue.EventAcquired, first, 2) // without retries it would be archived if it were charged
		if next.Fence <= two.Fence || again.Fence <= two.Fence {
			t.Errorf("fences: want more than %d, have %d and %d", two.Fence, next.Fence, again.Fence)
		}
		select {
		case <-other.ended:
			t.Error("want the other holder at work, its context has ended")
		default:
		}
		if lines := logs.lines("released by an operator"); len(lines) != 1 || !strings.Contains(lines[0], "by=alice reason=\"it is stuck\"") {
			t.Errorf("log: have %q", lines)
		}
		// The other one is the only holder in the end, which needs no fence.
		j.await(t, queue.EventReleased, first, 1)
		j.await(t, queue.EventReleased, third, 1)
		if have, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); err != nil || !strings.HasPrefix(have.Holder, "test:job ") {
			t.Errorf("want the only holder revoked, have %+v, %v", have, err)
		}
		within(t, patience, "the end of the other's context", other.ended)
		other.open()
	})
}

// A lock whose permits are all reserved, or have expired, is nobody's.
func TestRevokeTheMarkOfALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.rdb.Set(t.Context(), b.lockKey(), "siding-limited", time.Minute).Err())
	if _, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); !errors.Is(err, queue.ErrNotHeld) {
		t.Errorf("want ErrNotHeld, have %v", err)
	}
	if value, err := b.rdb.Get(t.Context(), b.lockKey()).Result(); value != "siding-limited" {
		t.Errorf("want the mark as it was, have %q, %v", value, err)
	}
}
