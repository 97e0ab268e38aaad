package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// longLease outlives each test, and is soon told of its end.
var longLease = lock.Config{TTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond}

func (b *bundle) revocation() queue.Revocation {
	return queue.Revocation{Resource: b.resource, By: "alice", Reason: "it is stuck"}
}

// revoke has an operator take the lock of the bundle's resource.
func (b *bundle) revoke() {
	b.Helper()
	expect.OK(b, expect.Err(queue.Revoke(b.Context(), b.rdb, b.revocation())))
}

// An operator takes the lock from a running task. Its context ends, the next task runs when the
// first one has returned and not before, and the first one runs again, and uses no retry.
func TestRevoke(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		logs := newLogs(b)
		cfg := queue.ServerConfig{Observe: b.observe, Logger: logs.logger, Lock: longLease}
		b.serve(cfg, b.run)
		stuck, first := b.begin(1, queue.Options{Retries: queue.NoRetries})
		second := b.park(2)[0]

		have, err := queue.Revoke(b.Context(), b.rdb, b.revocation())
		expect.Need(b, err == nil && strings.HasPrefix(have.Holder, "test:job "+first) && have.FreeWithin > 0 && have.FreeWithin <= 20*time.Second,
			"want the holder and a time, have %+v, %v", have, err)
		within(b, patience, "the end of the holder's context", stuck.ended)
		steadily(b, 300*time.Millisecond, "no second holder while the first is at work", func() bool { return len(b.order()) == 1 })
		returned := time.Now()
		stuck.open()
		one := b.await(queue.EventAcquired, first, 1)
		two := b.await(queue.EventAcquired, second, 1)
		wantSoon(b, returned, "want the next task at once")
		expect.That(b, two.Fence > one.Fence, "fences: want them to rise, have %d and %d", one.Fence, two.Fence)
		again := b.await(queue.EventAcquired, first, 2) // without retries it would be archived if it were charged
		b.await(queue.EventReleased, first, 1)
		b.wantOrder(1, 2, 1)
		lost := b.of(queue.EventLost, "")
		expect.That(b, len(lost) == 1 && lost[0].TaskID == first && again.Fence > one.Fence, "want one loss, have %+v", lost)
		line := logs.once(b, "released by an operator")
		expect.That(b, strings.Contains(line, "by=alice reason=\"it is stuck\""), "log: have %q", line)
	})
}

// A handler that returns why its context has ended uses no retry for that.
func TestHandlerReturnsTheLossOfItsLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		began, runs := make(chan struct{}), 0 // one at a time
		b.serve(queue.ServerConfig{Lock: longLease}, func(ctx context.Context, _ job) error {
			if runs++; runs > 1 {
				return nil
			}
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		id := b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries})
		within(b, patience, "the holder", began)
		b.revoke()
		b.awaitGone(id) // and not archived
	})
}

// A holder that does not listen loses the lock when its TTL is over, and what it does then counts as
// lost.
func TestRevokeAHolderThatGoesOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.unsafe = true
		b.serve(queue.ServerConfig{Observe: b.observe, Lock: shortTimes}, b.run)
		stuck, first := b.begin(1)
		second := b.park(2)[0]
		have, err := queue.Revoke(b.Context(), b.rdb, b.revocation())
		expect.Need(b, err == nil && have.FreeWithin > 0 && have.FreeWithin <= shortTimes.TTL,
			"want it free within %v, have %v, %v", shortTimes.TTL, have.FreeWithin, err)
		b.await(queue.EventAcquired, second, 1)
		stuck.open()
		b.await(queue.EventLost, first, 1)
		b.awaitGone(first, second)
	})
}

func (b *bundle) acquire(o *lock.Options) *lock.Lease {
	b.Helper()
	l := expect.Value(b.locker.Acquire(b.Context(), b.resource, o))(b)
	b.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

// A revocation that cannot work says why, and changes nothing.
func TestRevokeRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.acquire(&lock.Options{Holder: "the holder"})
	value := b.value()
	elsewhere := "res:" + uuid.NewString()
	expect.OK(t, b.rdb.Set(t.Context(), "wait:lock:"+elsewhere, "siding:x:y", time.Hour).Err())
	marked, foreign := "res:"+uuid.NewString(), "res:"+uuid.NewString()
	expect.OK(t, b.rdb.Set(t.Context(), "lock:"+marked, "siding-limited", time.Minute).Err()) // its permits are reserved, or have expired
	ended := expect.Value(b.locker.Acquire(t.Context(), foreign, nil))(t)
	expect.OK(t, ended.Release(t.Context()))
	expect.OK(t, b.rdb.Set(t.Context(), "lock:"+foreign, "theirs", time.Minute).Err()) // whom nobody could tell
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
		"no permit taken":     {change: func(r *queue.Revocation) { r.Resource = marked }, is: queue.ErrNotHeld},
		"an ended lease":      {change: func(r *queue.Revocation) { r.Resource, r.Fence = foreign, ended.Fence() }, is: queue.ErrOtherHolder},
		"in an outside store": {change: func(r *queue.Revocation) { r.Resource = elsewhere }, is: queue.ErrExternalStore, part: elsewhere},
	} {
		r := b.revocation()
		tt.change(&r)
		_, err := queue.Revoke(t.Context(), b.rdb, r)
		expect.That(t, err != nil && (tt.is == nil || errors.Is(err, tt.is)) && strings.Contains(err.Error(), tt.part),
			"%s: want %v and %q, have %v", name, tt.is, tt.part, err)
		expect.Equal(t, name+": the lock", b.value(), value)
		once(t, name, err)
	}
	for resource, want := range map[string]string{marked: "siding-limited", foreign: "theirs"} {
		expect.Equal(t, "the lock", b.rdb.Get(t.Context(), "lock:"+resource).Val(), want)
	}
	wantError(t, "without a client", "queue: redis", expect.Err(queue.Revoke(t.Context(), nil, b.revocation())))
}

// Of several holders the one with the fence loses its permit, and no other. The next waiter gets the
// permit when that holder has returned, and not before.
func TestRevokeOneOfSeveralHolders(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		logs := newLogs(b)
		b.unsafe = true // several are at work at once
		b.serve(queue.ServerConfig{
			Observe: b.observe, Logger: logs.logger, Limits: map[string]queue.Limit{"res:*": {Holders: 2}},
			Lock: longLease,
		}, b.run)
		other, stuck := b.hold(1), b.hold(2)
		one := b.await(queue.EventAcquired, b.enqueue(b.job(1)), 1)
		first := b.enqueue(b.job(2), queue.Options{Retries: queue.NoRetries})
		two := b.await(queue.EventAcquired, first, 1)
		within(b, patience, "the holder", stuck.entered)
		third := b.park(3)[0]

		_, err := queue.Revoke(b.Context(), b.rdb, b.revocation())
		expect.That(b, errors.Is(err, queue.ErrSeveralHolders) && strings.Contains(err.Error(), fmt.Sprint(" with fence ", one.Fence)) && strings.Contains(err.Error(), fmt.Sprint("test:job ", first, " on ")), "want both holders with their fences, have %v", err)
		r := b.revocation()
		r.Fence = 7
		expect.Is(b, "revoke", expect.Err(queue.Revoke(b.Context(), b.rdb, r)), queue.ErrOtherHolder)
		r.Fence = two.Fence
		have, err := queue.Revoke(b.Context(), b.rdb, r)
		expect.Need(b, err == nil && strings.HasPrefix(have.Holder, "test:job "+first) && have.FreeWithin > 0 && have.FreeWithin <= 20*time.Second,
			"want the holder and a time, have %+v, %v", have, err)
		within(b, patience, "the end of the holder's context", stuck.ended)
		steadily(b, 300*time.Millisecond, "no third holder while two are at work", func() bool { return len(b.of(queue.EventAcquired, third)) == 0 })
		expect.Equal(b, "fence of the record", b.rdb.HGet(b.Context(), "{"+b.lockKey()+"}:revoked", "fence").Val(), fmt.Sprint(two.Fence))
		stuck.open()
		next := b.await(queue.EventAcquired, third, 1)
		again := b.await(queue.EventAcquired, first, 2) // without retries it would be archived if it were charged
		expect.That(b, next.Fence > two.Fence && again.Fence > two.Fence,
			"fences: want more than %d, have %d and %d", two.Fence, next.Fence, again.Fence)
		expect.That(b, !isClosed(other.ended), "want the other holder at work, its context has ended")
		line := logs.once(b, "released by an operator")
		expect.That(b, strings.Contains(line, "by=alice reason=\"it is stuck\""), "log: have %q", line)
		// The other one is the only holder in the end, which needs no fence.
		b.await(queue.EventReleased, first, 1)
		b.await(queue.EventReleased, third, 1)
		have, err = queue.Revoke(b.Context(), b.rdb, b.revocation())
		expect.That(b, err == nil && strings.HasPrefix(have.Holder, "test:job "), "want the only holder revoked, have %+v, %v", have, err)
		within(b, patience, "the end of the other's context", other.ended)
		other.open()
	})
}

// A call whose answer was lost is sent again by the client, and another operator may have revoked the same lease before the
// call, or between the two. Neither hits the next holder.
func TestRevokeTwiceByTwo(t *testing.T) {
	t.Parallel()
	type row struct{ before, between bool }
	eachOf(t, onBoth, map[string]row{
		"nobody else":            {},
		"the other came before":  {before: true},
		"the other came between": {between: true},
	}, func(b *bundle, tt row) {
		var answers []any
		client := queue.Redis(b.opts)
		b.Cleanup(func() { _ = client.Close() })
		byOther := func() (queue.Revoked, error) {
			r := b.revocation()
			r.By = "bob"
			return queue.Revoke(b.Context(), b.rdb, r)
		}
		held := b.acquire(&lock.Options{Holder: "first"})
		var next *lock.Lease
		if tt.before {
			have, err := byOther()
			expect.That(b, err == nil && have.Holder == "first", "the other operator: have %+v, %v", have, err)
		}
		between := func() {
			if tt.between {
				expect.Is(b, "the other operator", expect.Err(byOther()), queue.ErrRevoked)
			}
			expect.Is(b, "release", held.Release(b.Context()), lock.ErrLost)
			next = b.acquire(&lock.Options{Holder: "next"})
		}
		client.AddHook(tap(func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			script, ok := cmd.(*redis.Cmd)
			if !ok || err != nil {
				return err
			}
			answers = append(answers, script.Val())
			between()
			err = send()
			answers = append(answers, script.Val())
			return err
		}))
		have, err := queue.Revoke(b.Context(), client, b.revocation())
		switch {
		case tt.before && (!errors.Is(err, queue.ErrRevoked) || !strings.Contains(err.Error(), "was taken from first by bob")),
			!tt.before && (err != nil || have.Holder != "first" || have.FreeWithin != 0), len(answers) != 2:
			b.Errorf("want the answer of the first call, have %+v, %v after %v", have, err, answers)
		}
		expect.OK(b, errors.Join(next.Renew(b.Context()), next.Release(b.Context())))
	})
}

// A lease that ran out is not one that was revoked, whatever became of the program that had the lock
// after it.
func TestRevokeAForeignHolderBlamesNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: noTimers}, Lock: shortTimes}, b.run)
	held, id := b.begin(1)
	expect.OK(t, b.rdb.Set(t.Context(), b.lockKey(), "theirs", time.Hour).Err()) // as if its TTL had passed
	within(t, patience, "the loss", held.ended)
	have, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
	expect.That(t, err == nil && have.Holder == "another program" && have.FreeWithin == 0, "have %+v, %v", have, err)
	held.open()
	reason := b.awaitState(id, asynq.TaskStateRetry).LastErr
	once(t, "a loss", errors.New(reason))
	want := "lost " + b.resource
	expect.That(t, strings.HasPrefix(reason, want) && !strings.Contains(reason, "alice"), "want a loss by nobody, have %q", reason)
	b.again(id)
	b.awaitGone(id)
}

// A task whose lock is revoked comes behind those who wait, unless it holds its line, and its last error says who did that: whether it
// notices that or returns before.
func TestRevokedTaskComesLast(t *testing.T) {
	t.Parallel()
	type row struct{ notices, holds bool }
	eachOf(t, onOne, map[string]row{
		"at the end of its context":             {notices: true},
		"before it notices":                     {},
		"holds its line, at the end of that":    {notices: true, holds: true},
		"holds its line, before it has noticed": {holds: true},
	}, func(b *bundle, tt row) {
		logs := newLogs(b)
		cfg := queue.ServerConfig{Logger: logs.logger, Lock: lock.Config{TTL: 20 * time.Second, RenewEvery: 6 * time.Second}}
		if tt.notices {
			cfg.Lock = longLease
		}
		order := []int{1, 2, 3, 1}
		if tt.holds {
			order = []int{1, 1, 2, 3}
			cfg.Policies = map[string]queue.Policy{b.job(0).Kind(): {OnFailure: queue.OnFailureHold}}
		}
		b.serve(cfg, b.run)
		held, id := b.begin(1)
		b.park(2, 3)
		next := b.hold(order[1])
		b.revoke()
		if tt.notices {
			within(b, patience, "the loss", held.ended)
		}
		held.open()
		within(b, patience, "the next task", next.entered)
		if !tt.holds {
			expect.Eventually(b, "the first comes again", func() bool {
				info, err := b.inspector.GetTaskInfo(b.queue, id)
				return err == nil && strings.Contains(info.LastErr, "alice released it: it is stuck")
			})
		}
		next.open()
		b.wantOrder(order...)
		logs.once(b, "released by an operator")
	})
}

// Who has revoked a lock, and why, stays known when others try it after that. A permit is as a lock.
func TestRevokedLockKeepsTheFirst(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string]int{"a lock": 1, "a permit": 2}, func(b *bundle, limit int) {
		b.serve(queue.ServerConfig{Lock: longLease, Limits: map[string]queue.Limit{b.resource: {Holders: limit}}}, b.run)
		stuck, id := b.begin(1)
		b.revoke()
		r := b.revocation()
		r.By, r.Reason = "bob", "another reason"
		_, err := queue.Revoke(b.Context(), b.rdb, r)
		expect.That(b, errors.Is(err, queue.ErrRevoked) && strings.Contains(err.Error(), " by alice, and is free in "),
			"want ErrRevoked by alice, have %v", err)
		within(b, patience, "the end of the holder's context", stuck.ended)
		stuck.open()
		info := b.awaitState(id, asynq.TaskStateRetry)
		expect.That(b, strings.Contains(info.LastErr, "alice released it: it is stuck") && info.Retried == 0,
			"want the first reason and no retry used, have %q, %d", info.LastErr, info.Retried)
		b.again(id)
		b.awaitGone(id)
	})
}
