package queue_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// A flow is a steady stream of jobs from a plain asynq client, and the handler that runs them. The
// handler knows which jobs of one resource have met.
type flow struct {
	t *testing.T
	b *bundle

	mu       sync.Mutex
	enqueued int            // jobs so far
	runs     map[int]int    // by job
	inside   map[string]int // jobs at work, by resource
	met      int            // how often a job began while another of its resource was at work
	may      bool           // they may meet
	held     *gate          // of the job with the number held
}

const (
	// work is how long a job takes, and pace how often there is one, for one of three resources.
	work = 5 * time.Millisecond
	pace = 4 * time.Millisecond
	// heldJob is the number of a job that stays at work until its gate is opened.
	heldJob = -1
)

// begin has jobs enqueued until stop is called.
func (f *flow) begin() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var done sync.WaitGroup
	client := asynq.NewClientFromRedisClient(f.b.rdb)
	done.Go(func() {
		for n := 0; sleep.For(ctx, pace) == nil; n++ {
			j := f.b.job(n)
			if n%3 > 0 {
				j.Res += fmt.Sprint(":", n%3)
			}
			if _, err := client.EnqueueContext(context.WithoutCancel(ctx), plainTask(f.t, j), asynq.Queue(f.b.queue)); err != nil {
				f.t.Errorf("enqueue: %v", err)
				return
			}
			f.mu.Lock()
			f.enqueued++
			f.mu.Unlock()
		}
	})
	stop = func() { cancel(); done.Wait() }
	f.t.Cleanup(stop)
	return stop
}

// run is the handler.
func (f *flow) run(ctx context.Context, j job) error {
	f.mu.Lock()
	f.runs[j.N]++
	if f.inside[j.Res]++; f.inside[j.Res] > 1 {
		f.met++
		if !f.may {
			f.t.Errorf("%s: job %d began while another was at work", j.Res, j.N)
		}
	}
	held := f.held
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inside[j.Res]--
		f.mu.Unlock()
	}()
	if j.N != heldJob {
		return sleep.For(ctx, work)
	}
	close(held.entered)
	<-held.opened
	return nil
}

// let says whether jobs of one resource may meet from now on.
func (f *flow) let(may bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.may = may
	for resource, n := range f.inside {
		if n > 0 {
			f.t.Errorf("%s: want no job at work, have %d", resource, n)
		}
	}
}

// hold has a job of the bundle's resource stay at work, and returns once so many others wait for it.
func (f *flow) hold(others int) *gate {
	g := &gate{entered: make(chan struct{}), opened: make(chan struct{})}
	f.mu.Lock()
	f.held = g
	f.mu.Unlock()
	f.b.enqueuePlain(f.t, f.b.job(heldJob))
	within(f.t, patience, "the held job", g.entered)
	poll.Eventually(f.t, "others in the wait queue", func() bool { return len(f.b.waiters(f.t)) >= others })
	return g
}

// awaitBegun waits until so many more jobs have begun.
func (f *flow) awaitBegun(jobs int) {
	f.t.Helper()
	f.awaitMore("begun", jobs, func() int { return len(f.runs) })
}

// awaitEnqueued waits until so many more jobs have been enqueued.
func (f *flow) awaitEnqueued(jobs int) {
	f.t.Helper()
	f.awaitMore("enqueued", jobs, func() int { return f.enqueued })
}

func (f *flow) awaitMore(what string, jobs int, count func() int) {
	f.t.Helper()
	have := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return count()
	}
	until := have() + jobs
	poll.Eventually(f.t, fmt.Sprint(jobs, " more jobs ", what), func() bool { return have() >= until })
}

func (f *flow) meetings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

// wantAllRunOnce waits until no job is left, and wants each to have run, and once.
func (f *flow) wantAllRunOnce() {
	f.t.Helper()
	poll.Eventually(f.t, "no job left", func() bool { return f.b.stats(f.t).Size == 0 })
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.enqueued {
		if f.runs[n] != 1 {
			f.t.Errorf("job %d: want one run, have %d", n, f.runs[n])
		}
	}
	if have := f.b.stats(f.t).Failed; have != 0 {
		f.t.Errorf("want no failures, have %d", have)
	}
}

// rest pauses the bundle's queue and waits until nobody works on its tasks.
func (b *bundle) rest(t *testing.T) {
	t.Helper()
	b.pause(t)
	b.awaitNoneActive(t)
}

func (b *bundle) pause(t *testing.T) {
	t.Helper()
	if err := b.inspector.PauseQueue(b.queue); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) awaitNoneActive(t *testing.T) {
	t.Helper()
	poll.Eventually(t, "no active task", func() bool { return b.stats(t).Active == 0 })
}

func (b *bundle) resume(t *testing.T) {
	t.Helper()
	if err := b.inspector.UnpauseQueue(b.queue); err != nil {
		t.Fatal(err)
	}
}

// docs/guides/from-asynq.md says how a fleet gets the guard, and how it goes back to plain asynq.
// Here it does both, step by step, while tasks come in all the time. From the first guarded task to
// the last, no two tasks of a resource meet. No task is lost at any time.
func TestRollout(t *testing.T) {
	t.Parallel()
	onBothPaths(t, testRollout)
}

func testRollout(t *testing.T, b *bundle) {
	t.Helper()
	f := &flow{t: t, b: b, runs: make(map[int]int), inside: make(map[string]int), may: true}
	stopOld := []func(){b.serveUnguarded(t, b.queue, f.run), b.serveUnguarded(t, b.queue, f.run)}
	stopFlow := f.begin()
	poll.Eventually(t, "tasks that meet without the guard", func() bool { return f.meetings() > 0 })

	// To the guard. 1: pause the queue; 2: wait until no task is active.
	b.rest(t)
	f.let(false)
	// 3: start the guarded servers.
	wired := &plain{guardConfig: queue.GuardConfig{Resources: resources()}}
	wired.start(t, b, handlerOf(f.run))
	t.Cleanup(func() { wired.stop(t) })
	server := b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Resources: resources()}}, f.run)
	poll.Eventually(t, "the old servers to be found beside them", func() bool { return len(b.unguardedFindings(t)) == len(stopOld) })
	f.awaitEnqueued(250) // which both kinds of servers would take
	// 4: stop the old ones, until CheckRedis finds none.
	for _, stop := range stopOld {
		stop()
	}
	poll.Eventually(t, "no old server", func() bool { return len(b.unguardedFindings(t)) == 0 })
	// 5: resume the queue.
	b.resume(t)
	f.awaitBegun(200)

	// Back. 1 and 2, at a moment at which tasks wait.
	held := f.hold(3)
	b.pause(t)
	held.open()
	b.awaitNoneActive(t)
	f.let(true)
	// 3: stop the guarded servers, start the old ones.
	wired.stop(t)
	shutdown(t, server)
	b.serveUnguarded(t, b.queue, f.run)
	waiting, err := b.inspector.ListRetryTasks(b.queue)
	if err != nil || len(waiting) == 0 || waiting[len(waiting)-1].NextProcessAt.Before(time.Now().Add(30*time.Minute)) {
		t.Errorf("want tasks that would come at fallback times of an hour or more, have %v, %v", waiting, err)
	}
	// 4: have those run that wait.
	if n, err := b.inspector.RunAllRetryTasks(b.queue); err != nil || n < len(waiting) {
		t.Errorf("want %d tasks or more, have %d, %v", len(waiting), n, err)
	}
	// 5: resume the queue.
	b.resume(t)
	f.awaitBegun(100)
	stopFlow()
	f.wantAllRunOnce()
}

// Without the last steps of the way back, a plain asynq server still runs the tasks that waited: at
// their fallback times, once each, and with all their retries. The test has that time pass by setting
// the times back, as nothing else about the tasks changes meanwhile.
func TestPlainServerRunsParkedTasks(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		server := b.serve(t, queue.ServerConfig{}, st.run)
		holder := st.hold(0)
		b.enqueue(t, b.job(0))
		within(t, patience, "the holder", holder.entered)
		ids := b.park(t, 1, 2, 3)
		// The fleet changes while they wait: nobody is left who would wake them.
		b.pause(t)
		holder.open()
		b.awaitNoneActive(t)
		shutdown(t, server)
		b.resume(t)

		var mu sync.Mutex
		runs := make(map[int]int)
		b.serveUnguarded(t, b.queue, func(ctx context.Context, j job) error {
			retried, ok := asynq.GetRetryCount(ctx)
			most, _ := asynq.GetMaxRetry(ctx)
			if !ok || retried != 0 || most != 25 {
				t.Errorf("job %d: want 25 retries, none of them used, have %d and %d", j.N, most, retried)
			}
			mu.Lock()
			defer mu.Unlock()
			runs[j.N]++
			return nil
		})
		for _, id := range ids {
			due, err := b.rdb.ZScore(t.Context(), b.key("retry"), id).Result()
			if wait := due - float64(time.Now().Unix()); err != nil || wait < 3500 || wait > 7200 {
				t.Errorf("want it to come by itself in 1 to 2 h, have %v s, %v", wait, err)
			}
			if err := b.rdb.ZIncrBy(t.Context(), b.key("retry"), -7200, id).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b.awaitGone(t, ids...)
		mu.Lock()
		defer mu.Unlock()
		if want := map[int]int{1: 1, 2: 1, 3: 1}; !maps.Equal(runs, want) {
			t.Errorf("runs: want %v, have %v", want, runs)
		}
		if have := b.stats(t).Failed; have != 0 {
			t.Errorf("want no failures, have %d", have)
		}
	})
}

// The Timeout of a task counts from the beginning of each attempt, and not while the task waits.
func TestTimeoutDoesNotCountTheWait(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const timeout = time.Hour
		st := newStage(t)
		deadlines := make(chan time.Time, 1)
		holder := st.hold(0)
		b.serve(t, queue.ServerConfig{}, func(ctx context.Context, j job) error {
			if deadline, ok := ctx.Deadline(); ok && j.N == 1 {
				deadlines <- deadline
			}
			return st.run(ctx, j)
		})
		b.enqueue(t, b.job(0))
		within(t, patience, "the holder", holder.entered)
		id := b.enqueue(t, b.job(1), queue.Options{Timeout: timeout})
		b.awaitState(t, id, asynq.TaskStateRetry)
		waited := time.Now() // and later, when the holder is let go
		holder.open()
		b.awaitGone(t, id)
		select {
		case have := <-deadlines:
			if have.Before(waited.Add(timeout)) {
				t.Errorf("want %v from %v on, have %v", timeout, waited, have)
			}
		default:
			t.Error("want an attempt with a deadline")
		}
	})
}
