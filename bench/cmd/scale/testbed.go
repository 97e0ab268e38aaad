package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

const (
	// clients is how many enqueue at once, and how many take locks.
	clients = 8
	// batch is how many tasks are enqueued between two looks at whether to go on.
	batch = 1000
	// held is on how many resources a chain of hand-offs may end in a handler that
	// keeps the lock; it is half of what a server runs at once by default.
	held = 10
	// limit bounds what takes a moment.
	limit = time.Minute
)

// A job is a task that waits.
type job struct {
	On string `json:"on"`
	N  int    `json:"n"`
}

func (job) Kind() string       { return "scale:job" }
func (j job) Resource() string { return j.On }

// A testbed is one Redis, the leases of locks in it, and a server.
type testbed struct {
	options
	opts   *redis.UniversalOptions
	rdb    *redis.Client
	prefix string // of the resources
	locker *lock.Locker
	leases map[string]*lock.Lease
	fleet  *fleet

	resources int
	own       float64         // bytes of a task in plain asynq
	tookFew   []time.Duration // each hand-off while few wait
}

func newTestbed(addr string, o options) (*testbed, error) {
	opts := &redis.UniversalOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true}
	rdb := redis.NewClient(opts.Simple())
	locker, err := lock.New(lock.Redis(rdb), lock.Config{TTL: o.ttl})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &testbed{options: o, opts: opts, rdb: rdb, locker: locker, leases: make(map[string]*lock.Lease)}, nil
}

func (s *testbed) close(ctx context.Context) error {
	err := s.clear(context.WithoutCancel(ctx)) // leases are renewed until they are released
	s.locker.Close()
	return errors.Join(err, s.rdb.Close())
}

func (s *testbed) resource(i int) string { return fmt.Sprintf("%s%06d", s.prefix, i) }

// hold takes the locks and keeps them.
func (s *testbed) hold(ctx context.Context, resources int) error {
	var mu sync.Mutex
	return split(ctx, resources, func(ctx context.Context, i int) error {
		held, err := s.locker.Acquire(ctx, s.resource(i), nil)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		s.leases[s.resource(i)] = held
		return nil
	})
}

// split calls do with 0 to n-1, from several goroutines.
func split(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	var all errgroup.Group // its context would end with Wait, and with it the leases
	var next atomic.Int64
	for range clients {
		all.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}

// enqueue enqueues so many tasks, one for each resource in turn.
func (s *testbed) enqueue(ctx context.Context, tasks, resources int) error {
	return enqueue(ctx, s.rdb, tasks, func(n int) string { return s.resource(n % resources) })
}

func enqueue(ctx context.Context, rdb redis.UniversalClient, tasks int, resource func(n int) string) error {
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return err
	}
	return split(ctx, (tasks+batch-1)/batch, func(ctx context.Context, i int) error {
		jobs := make([]queue.Job, 0, batch)
		for n := i * batch; n < min(tasks, (i+1)*batch); n++ {
			jobs = append(jobs, queue.Job{Task: job{On: resource(n), N: n}})
		}
		_, err := client.EnqueueBatch(ctx, jobs)
		return err
	})
}

// A fleet is one server, with what it tells of its tasks.
type fleet struct {
	server  *queue.Server
	parked  atomic.Int64  // tasks that were parked for the first time
	ended   chan struct{} // closed when they are to give up their locks
	mu      sync.Mutex
	passing map[string]int // hand-offs to come, by resource
	took    chan time.Duration
}

// start starts a server.
func (s *testbed) start(ctx context.Context) error {
	f := &fleet{ended: make(chan struct{}), passing: make(map[string]int), took: make(chan time.Duration, 100_000)}
	server, err := queue.NewServer(queue.RedisOpt(*s.opts), queue.ServerConfig{Observe: f.observe, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	queue.Handle(server, f.work)
	f.server, s.fleet = server, f
	return server.Start(ctx)
}

func (s *testbed) stop(ctx context.Context) error {
	close(s.fleet.ended)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.fleet.server.Shutdown(ctx)
}

func (f *fleet) observe(e queue.Event) {
	switch {
	case e.Kind == queue.EventParked && e.Parked == 1:
		f.parked.Add(1)
	case e.Kind == queue.EventAcquired && e.HandOff > 0:
		f.took <- e.HandOff
	}
}

// work ends at once while there are hand-offs to come on its resource. Then it keeps the lock, so
// that the rest goes on waiting.
func (f *fleet) work(ctx context.Context, j job) error {
	f.mu.Lock()
	left := f.passing[j.On]
	f.passing[j.On]--
	f.mu.Unlock()
	if left > 0 {
		return nil
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
	}
	return nil
}

// allParked returns when so many tasks are parked.
func (s *testbed) allParked(ctx context.Context, tasks int) error {
	last, since := int64(0), time.Now()
	for {
		now := s.fleet.parked.Load()
		if now >= int64(tasks) {
			return nil
		}
		if now > last {
			last, since = now, time.Now()
		}
		if time.Since(since) > limit {
			return fmt.Errorf("nothing happened for %v, at %d of %d tasks", limit, now, tasks)
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// chains lets the locks of some resources go from one waiting task to the next. It returns how long
// each hand-off took, by Redis's clock.
func (s *testbed) chains(ctx context.Context, tasks, resources int) ([]time.Duration, error) {
	chains := min(held, resources)
	each, waiting := (s.handOffs+chains-1)/chains, tasks/resources
	if each > waiting/2 { // the line runs empty, and no handler keeps its lock
		each = waiting
	}
	var all []time.Duration
	for i := 0; i < resources && len(all) < s.handOffs; i++ {
		resource := s.resource(i)
		s.fleet.mu.Lock()
		s.fleet.passing[resource] = each
		s.fleet.mu.Unlock()
		if err := s.leases[resource].Release(ctx); err != nil { // for the first in its line
			return nil, err
		}
		for range each {
			took, err := s.passed(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, after %d: %w", resource, len(all), err)
			}
			all = append(all, took)
		}
	}
	return all, nil
}

// passed returns how long the next hand-off took.
func (s *testbed) passed(ctx context.Context) (time.Duration, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case took := <-s.fleet.took:
		return took, nil
	case <-timer.C:
		return 0, fmt.Errorf("no hand-off within %v", limit)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// clear forgets all locks and tasks.
func (s *testbed) clear(ctx context.Context) error {
	leases := slices.Collect(maps.Values(s.leases))
	clear(s.leases)
	err := split(ctx, len(leases), func(ctx context.Context, i int) error {
		if err := leases[i].Release(ctx); !errors.Is(err, lock.ErrLost) { // as it is where tasks had it
			return err
		}
		return nil
	})
	return errors.Join(err, s.rdb.FlushAll(ctx).Err())
}
