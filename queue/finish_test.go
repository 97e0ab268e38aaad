package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// dump returns what Redis holds of the bundle's queue, by key without the queue's name. The dump
// lacks Siding's own fields. In place of a time it says whether that is about as expected.
func (b *bundle) dump(t *testing.T) map[string]any {
	t.Helper()
	ctx := t.Context()
	keys, err := b.rdb.Keys(ctx, "asynq:{"+b.queue+"}:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]any)
	for _, key := range keys {
		name := strings.TrimPrefix(key, b.key(""))
		var value any
		switch b.rdb.Type(ctx, key).Val() {
		case "string":
			value = b.rdb.Get(ctx, key).Val()
		case "list":
			value = b.rdb.LRange(ctx, key, 0, -1).Val()
		case "zset":
			members := b.rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
			until := make(map[string]bool)
			for _, z := range members {
				left := time.Until(time.Unix(int64(z.Score), 0))
				until[fmt.Sprint(z.Member)] = left > 9*time.Minute && left <= 10*time.Minute+2*time.Second
			}
			value = until
		case "hash":
			fields := b.rdb.HGetAll(ctx, key).Val()
			maps.DeleteFunc(fields, func(name, _ string) bool { return strings.HasPrefix(name, "siding_") })
			if msg, ok := fields["msg"]; ok {
				fields["msg"] = fmt.Sprint(len(msg) > 0)
			}
			fields["unique_key"] = strings.ReplaceAll(fields["unique_key"], b.queue, "q")
			value = fields
		}
		days := b.rdb.TTL(ctx, key).Val().Hours() / 24
		found[name] = []any{value, days > 89 && days < 90.01, days > 0}
	}
	return found
}

// A task that the guard has ended leaves the same in Redis as one that asynq has ended. That holds
// with and without uniqueness and retention.
func TestFinishedAsAsynqFinishes(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{true, false} {
		for _, unique := range []bool{false, true} {
			for _, kept := range []bool{false, true} {
				t.Run(fmt.Sprintf("guarded %t, unique %t, kept %t", guarded, unique, kept), func(t *testing.T) {
					t.Parallel()
					left := make(map[string]any)
					infos := make(map[string]*asynq.TaskInfo)
					for _, by := range []string{"asynq", "the guard"} {
						b := setup(t)
						opts := []asynq.Option{asynq.TaskID("id"), asynq.MaxRetry(3)}
						if unique {
							opts = append(opts, asynq.Unique(time.Hour))
						}
						if kept {
							opts = append(opts, asynq.Retention(10*time.Minute))
						}
						var finishes, acks atomic.Int32
						p := &plain{
							onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
								if isFinish(cmd) {
									finishes.Add(1)
								}
								return send()
							},
							onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
								if args := cmd.Args(); len(args) > 3 && args[3] == b.key("active") {
									acks.Add(1)
								}
								return send()
							},
						}
						if guarded {
							p.guardConfig.Resources = resources()
						}
						if by == "asynq" {
							p.unhooked, p.unwrapped, p.unguarded = true, true, true
						}
						b.resource = "res:" + t.Name()
						b.enqueuePlain(t, b.plainJob(1, guarded), opts...)
						p.start(t, b, func(_ context.Context, task *asynq.Task) error {
							_, err := task.ResultWriter().Write([]byte("result"))
							return err
						})
						defer p.stop(t)
						poll.Eventually(t, "its end", func() bool { return b.stats(t).Processed == 1 && b.stats(t).Active == 0 })
						left[by] = b.dump(t)
						infos[by], _ = b.inspector.GetTaskInfo(b.queue, "id")
						if by == "the guard" && (finishes.Load() == 0 || acks.Load() != 0) {
							t.Errorf("want it ended by the guard alone, have %d calls of it and %d of asynq's", finishes.Load(), acks.Load())
						}
						if _, err := b.inspector.GetTaskInfo(b.queue, "id"); (err == nil) != kept {
							t.Errorf("%s: want it kept: %t, have %v", by, kept, err)
						}
						if kept {
							info := infos[by]
							if since := time.Since(info.CompletedAt); since < -time.Second || since > time.Minute || info.LastErr != "" || string(info.Result) != "result" {
								t.Errorf("%s: want it just completed, with its result, have %+v", by, info)
							}
							info.CompletedAt, info.Queue = time.Time{}, ""
						}
					}
					if diff := cmp.Diff(left["asynq"], left["the guard"]); diff != "" {
						t.Errorf("(-asynq +guard):\n%s", diff)
					}
					if diff := cmp.Diff(infos["asynq"], infos["the guard"]); diff != "" {
						t.Errorf("(-asynq +guard):\n%s", diff)
					}
				})
			}
		}
	}
}

// A handler that panics or ends its goroutine has not succeeded: the guard does not end its task.
func TestHandlerThatDoesNotReturnIsNotFinished(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panics": func() { panic("no") }, "exits": runtime.Goexit} {
		for kind, guarded := range map[string]bool{"guarded": true, "unguarded": false} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				b, st := setup(t), newStage(t)
				var finishes atomic.Int32
				p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
					if isFinish(cmd) {
						finishes.Add(1)
					}
					return send()
				}}
				if guarded {
					p.guardConfig.Resources = resources()
				}
				st.act(1, func() error { end(); return nil })
				p.serve(t, b, st)
				// asynq waits for a handler that has ended its goroutine until the task's timeout.
				id := b.enqueuePlain(t, b.plainJob(1, guarded), asynq.Timeout(time.Second), asynq.MaxRetry(0))
				b.awaitState(t, id, asynq.TaskStateArchived)
				b.soonFree(t, b.resource)
				if finishes.Load() != 0 {
					t.Error("want it not ended by the guard")
				}
				if info := b.stats(t); info.Failed != 1 {
					t.Errorf("want one failure, have %+v", info)
				}
			})
		}
	}
}

// A handler that returns nil after its lock was lost has not succeeded. The task runs again.
func TestNilAfterALostLockIsNotFinished(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		st.unsafe = true
		held := st.hold(1)
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe, Lock: lock.Config{}}}, st.run)
		id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
		within(t, patience, "the holder", held.entered)
		b.rdb.Set(t.Context(), b.lockKey(), "another", time.Minute)
		held.open()
		j.await(t, queue.EventLost, id, 1)
		b.rdb.Del(t.Context(), b.lockKey())
		b.awaitGone(t, id)
		st.wantOrder(1, 1)
		if info := b.stats(t); info.Processed != 1 || info.Failed != 0 {
			t.Errorf("want it processed once, have %+v", info)
		}
	})
}

// A task that has failed, and then waited for its lock, shows its own failure once it is completed.
func TestFinishedTaskShowsItsOwnFailure(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		var failed atomic.Bool
		st.act(1, func() error {
			if !failed.Swap(true) {
				return errors.New("its own failure")
			}
			return nil
		})
		// The task's last retry comes when somebody else holds the lock.
		var held *lease.Lease
		taken := make(chan struct{})
		p := &plain{guardConfig: queue.GuardConfig{Resources: resources()}}
		p.config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration {
			held = b.take(t, lock.Config{})
			close(taken)
			return 0
		}
		p.serve(t, b, st)
		id := b.enqueuePlain(t, b.job(1), asynq.Retention(time.Hour))
		within(t, patience, "its failure", taken)
		poll.Eventually(t, "it to wait", func() bool { return slices.Contains(b.waiters(t), id) })
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		info := b.awaitState(t, id, asynq.TaskStateCompleted)
		if info.LastErr != "its own failure" || info.Retried != 1 {
			t.Errorf("want its own failure, have %+v", info)
		}
	})
}

// A server that is shut down in the middle of a backlog requeues its prefetched tasks. The shutdown
// leaves no task active and no lock held, and does not take long.
func TestShutdownRequeuesPrefetchedTasks(t *testing.T) {
	t.Parallel()
	for _, mute := range []bool{false, true} {
		t.Run(fmt.Sprintf("no notifier %t", mute), func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				const tasks = 400
				var jobs []queue.Job
				for n := range tasks {
					jobs = append(jobs, queue.Job{Task: job{Res: fmt.Sprint(b.resource, n%10), N: n}, Options: &queue.Options{Queue: b.queue}})
				}
				if _, err := b.client.EnqueueBatch(t.Context(), jobs); err != nil {
					t.Fatal(err)
				}
				for round := range 3 {
					s := b.newServer(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4, ShutdownTimeout: patience}, Guard: queue.GuardConfig{NoNotifier: mute}})
					queue.Handle(s, st.run)
					if err := s.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					st.awaitRuns(20 * (round + 1))
					start := time.Now()
					shutdown(t, s)
					if took := time.Since(start); took > prompt {
						t.Errorf("want it down soon, have %v", took)
					}
					if info := b.stats(t); info.Active != 0 {
						t.Errorf("want none active, have %+v", info)
					}
					for n := range 10 {
						if v := b.lockOf(t, fmt.Sprint(b.resource, n)); strings.HasPrefix(v, "siding:") {
							t.Errorf("want no lock held, have %q", v)
						}
					}
				}
				s := b.newServer(t, queue.ServerConfig{Guard: queue.GuardConfig{NoNotifier: mute}})
				queue.Handle(s, st.run)
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				poll.Eventually(t, "all to be done", func() bool { return b.stats(t).Size == 0 })
				shutdown(t, s)
				order := st.order()
				slices.Sort(order)
				if len(order) != tasks || len(slices.Compact(order)) != tasks {
					t.Errorf("want each to run once, have %d runs", len(order))
				}
			})
		})
	}
}

// Slow middleware around the guard's keeps a worker from the task that was taken for it. That task runs
// elsewhere, and no task runs twice.
func TestTakenInAdvanceForAWorkerThatDoesNotCome(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		release := make(chan struct{})
		slow := &plain{outermost: slowOutside(release, nil)}
		slow.config.Concurrency = 1
		first := st.hold(0)
		b.enqueue(t, b.job(0))
		slow.serve(t, b, st)
		t.Cleanup(func() { close(release) }) // before the server is stopped
		within(t, patience, "the first", first.entered)
		var ids []string
		for n := range 3 {
			ids = append(ids, b.enqueue(t, b.job(n+1)))
		}
		first.open()
		start := time.Now()
		b.serve(t, queue.ServerConfig{}, st.run)
		b.awaitGone(t, ids...)
		if took := time.Since(start); took > prompt {
			t.Errorf("want none recovered, have them take %v", took)
		}
		runs := st.order() // in a Cluster whoever comes first takes the lock
		if slices.Sort(runs); !slices.Equal(runs, []int{0, 1, 2, 3}) {
			t.Errorf("want each to run once, have %v", runs)
		}
		b.soonFree(t, b.resource)
	})
}
