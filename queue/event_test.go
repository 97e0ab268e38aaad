package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// An observer learns how long a task waited, for whom, and what ended the wait.
func TestEventsOfWaits(t *testing.T) {
	t.Parallel()
	// enough is how long each task of this test waits at least.
	const enough = 20 * time.Millisecond
	for name, tt := range map[string]struct {
		end  func(*testing.T, *bundle, *lock.Lease, string) // ends the wait of a task
		want queue.Via
	}{
		"by a release": {func(t *testing.T, _ *bundle, held *lock.Lease, _ string) {
			t.Helper()
			if err := held.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}, queue.ViaHandOff},
		"as its holder has gone": {func(t *testing.T, b *bundle, _ *lock.Lease, _ string) {
			t.Helper()
			if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
				t.Error(err)
			}
		}, queue.ViaRecovery},
		"by its timer": {func(t *testing.T, b *bundle, _ *lock.Lease, id string) {
			t.Helper()
			if _, err := b.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Del(t.Context(), b.lockKey(), b.waitQueueKey())
				p.ZRem(t.Context(), b.key("retry"), id)
				p.HSet(t.Context(), b.taskKey(id), "state", "pending")
				p.LPush(t.Context(), b.key("pending"), id)
				return nil
			}); err != nil {
				t.Error(err)
			}
		}, queue.ViaTimer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			st, j := newStage(t), &journal{}
			held, err := b.locker.Acquire(t.Context(), b.resource, &lock.Options{Holder: "the test, held by itself since 1"})
			if err != nil {
				t.Fatal(err)
			}
			b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
			b.awaitListener(t) // or the release of a program that is no server wakes nobody
			id := b.enqueue(t, b.job(1))
			if e := j.await(t, queue.EventParked, id, 1); !strings.HasPrefix(e.Holder, "the test, held by") || e.Waited != 0 || e.Via != "" {
				t.Errorf("parked: have %+v", e)
			}
			came := time.Now()
			time.AfterFunc(enough, func() { tt.end(t, b, held, id) })
			e := j.await(t, queue.EventAcquired, id, 1)
			most := time.Since(came) + patience
			if e.Via != tt.want || e.Waited < enough || e.Waited > most || e.Holder != "the test, held by itself since 1" {
				t.Errorf("want %v, a wait of %v to %v, and the holder, have %+v", tt.want, enough, most, e)
			}
			if handedOff := e.HandOff > 0; handedOff != (tt.want == queue.ViaHandOff) {
				t.Errorf("hand-off: have %v", e.HandOff)
			}
			held.Detach()
		})
	}
}

// A task that finds its resource free has not waited. Tasks without a resource are observed, too.
func TestEventsWithoutAWait(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		j, own := &journal{}, errors.New("own failure")
		server := b.newServer(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}})
		queue.Handle(server, newStage(t).run)
		queue.Handle(server, func(context.Context, note) error { return queue.Permanent(own) })
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shutdown(t, server) })
		free := b.enqueue(t, b.job(0))
		if e := j.await(t, queue.EventAcquired, free, 1); e.Waited != 0 || e.Via != "" || e.Holder != "" || e.HandOff != 0 {
			t.Errorf("acquired: want no wait, have %+v", e)
		}
		j.await(t, queue.EventReleased, free, 1)
		failed := b.enqueue(t, note{})
		started, finished := j.await(t, queue.EventStarted, failed, 1), j.await(t, queue.EventFinished, failed, 1)
		if started.TaskKind != "test:note" || started.Queue != b.queue || started.Resource != "" {
			t.Errorf("started: have %+v", started)
		}
		if finished.Held <= 0 || !errors.Is(finished.Err, own) {
			t.Errorf("finished: want a time and the handler's error, have %+v", finished)
		}
		if all := j.of(queue.EventAcquired, failed); len(all) > 0 {
			t.Errorf("a task without a resource: want no lock, have %+v", all)
		}
	})
}
