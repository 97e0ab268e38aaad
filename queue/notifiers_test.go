package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A notice for any queue wakes an idle server, whichever queue it asked last before it waited.
func TestNotifyListOfEachQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	queues := map[string]int{}
	for i := range 5 {
		queues[fmt.Sprint(b.queue, i)] = 1
	}
	ran := make(chan string)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: queues, TaskCheckInterval: time.Minute}}, func(ctx context.Context, _ job) error {
		ran <- queue.InfoFrom(ctx).Queue
		return nil
	})
	for round := range 5 {
		for name := range queues {
			b.enqueue(t, b.job(round), queue.Options{Queue: name})
			late := time.NewTimer(patience)
			select {
			case have := <-ran:
				if have != name {
					t.Errorf("want a task of %s, have one of %s", name, have)
				}
			case <-late.C:
				t.Fatalf("round %d: want a notice for %s received", round, name)
			}
			late.Stop()
		}
	}
}

// Tasks that nobody notified are found, even while notifications for another queue come more often
// than the server scans.
func TestTasksWithoutWordBesideATrickle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	noticed, other := b.queue, b.queue+".other"
	quiet := make(chan struct{})
	handled := make(chan struct{}, 1)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{noticed: 1, other: 1}, TaskCheckInterval: 500 * time.Millisecond}}, func(ctx context.Context, _ job) error {
		if queue.InfoFrom(ctx).Queue == other {
			close(quiet)
			return nil
		}
		handled <- struct{}{}
		return nil
	})
	plain := asynq.NewClientFromRedisClient(b.rdb)
	for n := range 60 {
		b.enqueue(t, b.job(n))
		within(t, patience, "a task that rang", handled)
		if n == 20 {
			task := asynq.NewTaskWithHeaders(job{}.Kind(), []byte(`{"Res":"res:quiet"}`), map[string]string{queue.HeaderResource: "res:quiet"})
			if _, err := plain.EnqueueContext(t.Context(), task, asynq.Queue(other)); err != nil {
				t.Fatal(err)
			}
		}
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-quiet:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
	t.Error("want the quiet task found within 4 s")
}
