package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// otherScript makes one of asynq's scripts another one, as in another release of asynq.
func otherScript(sha string) tap {
	return func(_ context.Context, cmd redis.Cmder, send func() error) error {
		args := cmd.Args()
		if len(args) < 3 {
			return send()
		}
		switch text := fmt.Sprint(args[1]); {
		case cmd.Name() == "evalsha" && text == sha:
			return notLoadedError{}
		case cmd.Name() == "eval" && redis.NewScript(text).Hash() == sha:
			args[1] = text + "\n"
		}
		return send()
	}
}

// otherDequeue is another dequeue.
var otherDequeue = otherScript("a8153319360adc71cdc370107f8ab9786f204765")

type notLoadedError struct{}

func (notLoadedError) RedisError()   {}
func (notLoadedError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }

// otherLog begins the log line that tells of another asynq.
const otherLog = "asynq is not the one known"

// With another asynq, tasks wait for their fallback times, use no retry and are not archived. That
// holds for each script that may differ. One line in the log says so.
func TestOtherAsynq(t *testing.T) {
	t.Parallel()
	scripts, err := os.ReadFile("../internal/hook/asynq.scripts")
	if err != nil {
		t.Fatal(err)
	}
	shas := map[string]string{}
	for line := range strings.Lines(string(scripts)) {
		if words := strings.Fields(line); len(words) == 2 {
			shas[words[0]] = words[1]
		}
	}
	for _, name := range []string{
		"dequeue", "done", "doneUnique", "markAsComplete", "markAsCompleteUnique", "retry", "archive", "forward", "listLeaseExpired",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if shas[name] == "" {
				t.Fatal("want its SHA1 in asynq.scripts")
			}
			b, logs := setup(t), newLogs(t)
			p := &plain{
				inFront:     otherScript(shas[name]),
				guardConfig: queue.GuardConfig{Logger: logs.logger, Resources: resources()},
				config:      asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }},
			}
			b.waitUnderAnotherAsynq(t, p)
			if have := logs.lines(otherLog, slog.LevelError); len(have) != 1 {
				t.Errorf("want one line, have %q", have)
			}
		})
	}
}

// waitUnderAnotherAsynq has p run tasks that end in all ways. Two of them wait for a lock that
// somebody else holds.
func (b *bundle) waitUnderAnotherAsynq(t *testing.T, p *plain) {
	t.Helper()
	lease, st := b.take(t, lock.Config{}), newStage(t)
	st.act(4, func() error { return errors.New("own failure") })
	st.act(5, func() error { return errors.New("own failure") })
	p.serve(t, b, st)
	elsewhere := func(n int) job { return job{Res: fmt.Sprint(b.resource, ":", n), N: n} }
	unique, kept := asynq.Unique(time.Hour), asynq.Retention(time.Hour)
	waits := []string{b.enqueuePlain(t, b.job(6), asynq.MaxRetry(0)), b.enqueuePlain(t, b.job(7), asynq.MaxRetry(1))}
	for _, id := range waits {
		if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 0 || !strings.HasPrefix(info.LastErr, "waiting for "+b.resource) {
			t.Errorf("want it parked, and no retry used, have %+v", info)
		}
	}
	done := []string{b.enqueuePlain(t, elsewhere(0)), b.enqueuePlain(t, elsewhere(1), unique)}
	completed := []string{b.enqueuePlain(t, elsewhere(2), kept), b.enqueuePlain(t, elsewhere(3), kept, unique)}
	archived := []string{b.enqueuePlain(t, elsewhere(4), asynq.MaxRetry(0)), b.enqueuePlain(t, elsewhere(5), asynq.MaxRetry(1))}
	b.awaitGone(t, done...)
	for _, id := range completed {
		b.awaitState(t, id, asynq.TaskStateCompleted)
	}
	for _, id := range archived {
		b.awaitState(t, id, asynq.TaskStateArchived)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitGone(t, waits...)
	have := st.order()
	slices.Sort(have)
	if want := []int{0, 1, 2, 3, 4, 5, 5, 6, 7}; !slices.Equal(have, want) {
		t.Errorf("want runs %v, have %v", want, have)
	}
	if info := b.stats(t); info.Failed != 3 || info.Processed != len(have) || info.Archived != len(archived) {
		t.Errorf("want %d processed, 3 failed, %d archived, have %+v", len(have), len(archived), info)
	}
}

// Tasks that waited before asynq was another one run all the same: the server hands off each lock that
// is free.
func TestOtherAsynqFindsWaiters(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	before := &plain{}
	before.serve(t, b, st)
	lease := b.take(t, lock.Config{})
	ids := b.park(t, 1, 2, 3)
	before.stop(t)
	lease.Detach()
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil { // as after a release that was lost
		t.Fatal(err)
	}
	(&plain{inFront: otherDequeue}).serve(t, b, st)
	b.awaitGone(t, ids...)
}

// A lost lease archives no task. That holds without retries, too, and if the unknown script is
// asynq's acknowledgement.
func TestOtherAsynqLeaseLost(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	(&plain{inFront: otherDequeue}).serve(t, b, st)
	holder := st.hold(0)
	st.act(0, func() error { return queue.Permanent(errors.New("own failure")) })
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", holder.entered)
	b.takenFrom(t)
	holder.open()
	if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 0 || !strings.HasPrefix(info.LastErr, "lost "+b.resource) {
		t.Errorf("want it parked, and no retry used, have %+v", info)
	}
	b.awaitState(t, id, asynq.TaskStateArchived) // the second run's own failure
}

// A task of such an asynq that a shutdown requeues is not taken for one that waits.
func TestOtherAsynqShutdown(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	p := &plain{inFront: otherScript("f34cbfd11d1fc8019af55b50c447fc68eb8b29e5")}
	p.serve(t, b, st)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", holder.entered)
	p.server.Shutdown()
	if have := b.state(id); have != asynq.TaskStatePending {
		t.Errorf("want it pending, have %v", have)
	}
	holder.open()
	p.stop(t)
}
