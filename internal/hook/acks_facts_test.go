package hook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
)

// leaseTime is how long asynq leases a task to a worker. Another server takes the task over after
// recoveryDelay more. Every server looks when it starts, then once a minute. So a server sees the
// task of a crashed one after 30 s + 30 s + up to 60 s.
const (
	leaseTime     = 30 * time.Second
	recoveryDelay = 30 * time.Second
)

// asynq calls it done when the context has ended, whatever the handler does.
func TestAsynqDoesNotWaitForAHandlerWhoseContextEnded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts []asynq.Option
		end  func(*bench, string) error
	}{
		{
			name: "timeout",
			opts: []asynq.Option{asynq.Timeout(time.Second)},
			end:  func(*bench, string) error { return nil },
		},
		{
			name: "cancelled by an operator",
			end:  func(b *bench, id string) error { return b.inspector.CancelProcessing(id) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			handler, attempts := b.manual()
			id := b.enqueue(tc.opts...)
			b.serve(asynq.Config{}, handler)
			zombie := next(t, "first attempt", attempts)
			// Cancelling is a message to those who listen, so it may be sent again.
			var second attempt
			poll.Eventually(t, "a second attempt while the first goes on", func() bool {
				if err := tc.end(b, id); err != nil {
					t.Fatal(err)
				}
				select {
				case second = <-attempts:
					return true
				default:
					return false
				}
			})
			if zombie.ctx.Err() == nil {
				t.Error("want the first attempt's context ended")
			}
			zombie.end <- nil
			second.end <- nil
		})
	}
}

func TestAsynqShutdownDoesNotWaitForAHandlerBeyondItsTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	first := b.serve(asynq.Config{}, handler)
	zombie := next(t, "first attempt", attempts)
	first.stop()
	if info := b.await(id, asynq.TaskStatePending); info.Retried != 0 {
		t.Errorf("want the task requeued at the cost of no retry, have %d retries", info.Retried)
	}
	b.serve(asynq.Config{}, handler)
	second := next(t, "second attempt while the first goes on", attempts)
	zombie.end <- nil
	second.end <- nil
	b.awaitGone(id)
}

func TestAsynqLeasesTasksFor30Seconds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	earliest := time.Now().Add(leaseTime).Unix()
	b.serve(asynq.Config{}, handler)
	a := next(t, "attempt", attempts)
	score := int64(b.score("lease", id))
	if latest := time.Now().Add(leaseTime).Unix(); score < earliest || score > latest {
		t.Errorf("want %d to %d, have %d", earliest, latest, score)
	}
	a.end <- nil
}

// crash runs a server until it has a task. Then crash cuts the server off Redis, as a network or a
// crash would, and sets the end of the lease so long ago.
func (b *bench) crash(cfg asynq.Config, expired time.Duration, opts ...asynq.Option) (id string, srv *server, zombie attempt) {
	b.t.Helper()
	handler, attempts := b.manual()
	id = b.enqueue(opts...)
	srv = b.serve(cfg, handler)
	zombie = next(b.t, "attempt to crash", attempts)
	srv.cutOff(everything)
	// No heartbeat, one in 5 s, prolongs the lease from here on.
	b.rescore("lease", id, time.Now().Add(-expired))
	return id, srv, zombie
}

func TestAsynqRecoversACrashedTaskOnlyAMinuteAfterItsLastHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _, zombie := b.crash(asynq.Config{}, recoveryDelay/2)
	handler, attempts := b.manual()
	isRecovery := func(c scriptCall) bool { return c.is("lease") }

	early := b.serve(asynq.Config{}, handler)
	poll.Eventually(t, "a look at expired leases", func() bool { return len(early.calls(isRecovery)) > 0 })
	look := early.calls(isRecovery)[0]
	cutoff, _ := look.argv[0].(int64)
	if age := time.Since(time.Unix(cutoff, 0)); age < recoveryDelay || age > recoveryDelay+patience {
		t.Errorf("want it to look for leases that expired %v ago, have %v", recoveryDelay, age)
	}
	if found, ok := look.reply.([]any); !ok || len(found) > 0 {
		t.Errorf("want nothing found that expired %v ago, have %v", recoveryDelay/2, look.reply)
	}
	b.await(id, asynq.TaskStateActive)
	early.stop()

	b.rescore("lease", id, time.Now().Add(-recoveryDelay-time.Second))
	b.serve(asynq.Config{}, handler)
	second := next(t, "second attempt", attempts)
	info := b.await(id, asynq.TaskStateActive)
	if info.Retried != 1 || info.LastErr != asynq.ErrLeaseExpired.Error() {
		t.Errorf("want 1 retry counted for %q, have %d for %q", asynq.ErrLeaseExpired, info.Retried, info.LastErr)
	}
	second.end <- nil
	b.awaitGone(id)
	zombie.end <- nil
}

func TestAsynqRecoveryArchivesOnLastAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _, zombie := b.crash(asynq.Config{}, recoveryDelay+time.Second, asynq.MaxRetry(0))
	b.serve(asynq.Config{
		IsFailure: func(error) bool { return false },
		ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) {
			t.Error("want no call of the error handler by the recovery")
		}),
	}, func(context.Context, *asynq.Task) error { return nil })
	if info := b.await(id, asynq.TaskStateArchived); info.LastErr != asynq.ErrLeaseExpired.Error() {
		t.Errorf("want %q, have %q", asynq.ErrLeaseExpired, info.LastErr)
	}
	zombie.end <- nil
}

func TestAsynqRecoveryAsksIsFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _, zombie := b.crash(asynq.Config{}, recoveryDelay+time.Second)
	b.serve(asynq.Config{
		IsFailure:      func(err error) bool { return !errors.Is(err, asynq.ErrLeaseExpired) },
		RetryDelayFunc: retryAfter(time.Hour),
	}, func(context.Context, *asynq.Task) error { return nil })
	if info := b.await(id, asynq.TaskStateRetry); info.Retried != 0 {
		t.Errorf("want no retry counted, have %d", info.Retried)
	}
	zombie.end <- nil
}

// takeOver has another server recover the crashed task and start an attempt.
func (b *bench) takeOver() (srv *server, successor attempt) {
	b.t.Helper()
	handler, attempts := b.manual()
	srv = b.serve(asynq.Config{}, handler)
	return srv, next(b.t, "successor", attempts)
}

func isDone(c scriptCall) bool  { return len(c.keys) == 5 && c.suffix(0) == "active" }
func isRetry(c scriptCall) bool { return len(c.keys) == 8 && c.suffix(3) == "retry" }

// An attempt that was taken for dead succeeds, and ends its successor's entry:
// whatever that one then reports is lost.
func TestAsynqLateSuccessDeletesTheSuccessorsEntry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, zombies, zombie := b.crash(asynq.Config{}, recoveryDelay+time.Second)
	successors, successor := b.takeOver()
	zombies.heal()
	zombie.end <- nil
	b.awaitGone(id)
	successor.end <- errors.New("must be tried again")
	// The first of them was the recovery of the first attempt.
	poll.Eventually(t, "the successor's report", func() bool { return len(successors.calls(isRetry)) > 1 })
	if c := successors.calls(isRetry)[1]; c.err == nil {
		t.Error("want the successor's failure refused")
	}
	b.awaitGone(id)
}

// An attempt that was taken for dead fails, and moves its successor's entry to the retry set. The
// task runs a third time although it has succeeded.
func TestAsynqLateFailureMakesASucceededTaskRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// The zombie's report sets the time of the third attempt.
	id, zombies, zombie := b.crash(asynq.Config{RetryDelayFunc: retryAfter(time.Hour)}, recoveryDelay+time.Second)
	successors, successor := b.takeOver()
	zombies.heal()
	zombie.end <- errors.New("too late")
	b.await(id, asynq.TaskStateRetry)
	successor.end <- nil
	poll.Eventually(t, "the successor's report", func() bool { return len(successors.calls(isDone)) > 0 })
	if c := successors.calls(isDone)[0]; c.err == nil {
		t.Error("want the successor's success refused")
	}
	b.await(id, asynq.TaskStateRetry)
}

// asynq sends a failed acknowledgement again with a context that it has cancelled.
func TestAsynqNeverRepeatsAFailedAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	srv := b.serve(asynq.Config{}, handler)
	a := next(t, "attempt", attempts)
	srv.cutOff(isDone)
	a.end <- nil
	poll.Eventually(t, "a failed acknowledgement", func() bool { return len(srv.calls(isDone)) == 1 })
	srv.heal()
	srv.stop() // which has the rest sent once more
	calls := srv.calls(isDone)
	if len(calls) != 2 {
		t.Fatalf("want a second call, have %d in all", len(calls))
	}
	if last := calls[1]; !errors.Is(last.ctxErr, context.Canceled) || !errors.Is(last.err, context.Canceled) {
		t.Errorf("want it cancelled before it was sent, have context %v, error %v", last.ctxErr, last.err)
	}
	b.await(id, asynq.TaskStateActive) // with nobody at work on it
}

// A result that is written when the task is over elsewhere leaves a hash that never expires. So the
// id of the task is taken for ever.
func TestAsynqLateResultOccupiesTheTaskIDForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, zombies, zombie := b.crash(asynq.Config{}, recoveryDelay+time.Second)
	_, successor := b.takeOver()
	successor.end <- nil
	b.awaitGone(id)
	zombies.heal()
	if _, err := zombie.task.ResultWriter().Write([]byte("result")); err != nil {
		t.Fatal(err)
	}
	if ttl := b.rdb.TTL(t.Context(), b.key("t:"+id)).Val(); ttl != -1 {
		t.Errorf("want the hash there without an expiry (-1), have %v", ttl)
	}
	_, err := asynq.NewClientFromRedisClient(b.rdb).Enqueue(asynq.NewTask("fact", nil), asynq.Queue(b.queue), asynq.TaskID(id))
	if !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("want %v, have %v", asynq.ErrTaskIDConflict, err)
	}
	zombie.end <- nil
}

func TestAsynqRefusesResultsOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	b.enqueue()
	srv := b.serve(asynq.Config{}, handler)
	zombie := next(t, "attempt", attempts)
	srv.stop()
	if _, err := zombie.task.ResultWriter().Write([]byte("result")); !errors.Is(err, context.Canceled) {
		t.Errorf("want %v, have %v", context.Canceled, err)
	}
	zombie.end <- nil
}
