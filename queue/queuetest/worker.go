package queuetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// A Worker runs tasks. The zero value is ready; it is safe for use by several
// goroutines, which then wait for one another as tasks of a fleet do.
type Worker struct {
	mu        sync.Mutex
	resources map[string]*resource
	fence     int64
}

type resource struct {
	turn chan struct{} // holds one element while the resource is free
	lose func()        // ends the lease of the task that holds it, nil when none does
}

// Run runs t with fn and returns fn's error. A task that the client would
// refuse gives the client's error. Each run is a task of its own; to run one
// twice, as a worker may after a crash, put its id into ctx with
// [WithInfo]. A lease that [Worker.Lose] ended makes the error match
// lock.ErrLost, whatever fn returned. ctx also bounds the wait for the
// resource. A result that fn writes, by [queue.AsynqTask], is kept nowhere.
func Run[T queue.Task](ctx context.Context, w *Worker, t T, fn func(context.Context, T) error) error {
	decoded, payload, err := sent(t)
	switch {
	case err != nil:
		return err
	case w == nil:
		return fmt.Errorf("queuetest: %s: want a Worker, have nil", t.Kind())
	case fn == nil:
		return fmt.Errorf("queuetest: %s: want a handler, have nil", t.Kind())
	}
	info := queue.InfoFrom(ctx)
	info.Kind, info.Queue, info.ID = t.Kind(), cmp.Or(info.Queue, "default"), cmp.Or(info.ID, uuid.NewString())
	var names []string
	m := &taskredis.Message{Type: info.Kind, Payload: payload, ID: info.ID, Queue: info.Queue, Retry: info.Retries, Retried: info.Retried}
	if guarded, ok := queue.Task(decoded).(queue.Guarded); ok {
		info.Resource = guarded.Resource()
		names, m.Headers = store.Names(info.Resource), map[string]string{queue.HeaderResource: info.Resource}
	}
	run := func(ctx context.Context) error {
		return asynqhandler.Run(WithInfo(ctx, info), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return fn(context.WithValue(ctx, engine.TaskKey{}, task), decoded)
		}), m)
	}
	for _, name := range slices.Backward(names) { // all workers take them in one order
		next := run
		run = func(ctx context.Context) error { return w.hold(ctx, name, next) }
	}
	return run(ctx)
}

// sent returns a task as a worker gets it, and its payload, or the client's error.
func sent[T queue.Task](t T) (decoded T, payload []byte, err error) {
	if err := (queue.ClientConfig{}).Check(t, nil); err != nil {
		return decoded, nil, err
	}
	if payload, err = json.Marshal(t); err != nil {
		return decoded, nil, fmt.Errorf("queuetest: %w", err)
	}
	if err := json.Unmarshal(payload, &decoded); err != nil {
		return decoded, nil, fmt.Errorf("queuetest: the task does not survive JSON: %w", err)
	}
	if err := (queue.ClientConfig{}).Check(decoded, nil); err != nil { // a worker would archive it
		return decoded, nil, fmt.Errorf("queuetest: the task does not survive JSON: %w", err)
	}
	return decoded, payload, nil
}

// RunBatch runs tasks of one resource with fn, a handler by queue.HandleBatch, as [Run] does with one task. It returns what becomes of
// each, in the same order. The error says why fn was not called, as for a batch that no server forms, or that the lease was lost.
func RunBatch[T queue.Guarded](ctx context.Context, w *Worker, tasks []T, fn func(context.Context, []*queue.BatchTask[T]) error) ([]error, error) {
	switch {
	case len(tasks) == 0:
		return nil, errors.New("queuetest: want tasks, have none")
	case len(tasks) > queue.MaxBatch:
		return nil, fmt.Errorf("queuetest: want %d tasks at most, have %d", queue.MaxBatch, len(tasks))
	case fn == nil:
		return nil, fmt.Errorf("queuetest: %s: want a handler, have nil", tasks[0].Kind())
	}
	batch, outcomes := make([]*queue.BatchTask[T], len(tasks)), make([]error, len(tasks))
	for i, t := range tasks {
		decoded, _, err := sent(t)
		if err != nil {
			return nil, err
		}
		switch want, have := tasks[0].Resource(), decoded.Resource(); {
		case have != want:
			return nil, fmt.Errorf("queuetest: %s: resource: want %q as of the first task, have %q", t.Kind(), want, have)
		case len(tasks) > 1 && len(store.Names(have)) > 1: // each is alone
			return nil, fmt.Errorf("queuetest: %s: want one task, as it needs several resources, have %d", t.Kind(), len(tasks))
		}
		batch[i] = &queue.BatchTask[T]{Task: decoded}
	}
	err := Run(ctx, w, tasks[0], func(ctx context.Context, _ T) error {
		for i, t := range batch {
			if t.Info = queue.InfoFrom(ctx); i > 0 {
				t.Info.ID = uuid.NewString()
			}
		}
		err := fn(ctx, slices.Clone(batch)) // as a server
		for i, t := range batch {
			outcomes[i] = t.Outcome(err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// WithInfo returns a context that carries info, as those of handlers do, for [queue.InfoFrom].
func WithInfo(ctx context.Context, info queue.Info) context.Context {
	return context.WithValue(ctx, engine.InfoKey{}, info)
}

// Lose ends the lease of the task that is running on the resource, or on any of several. The task's context is cancelled
// with a cause that matches lock.ErrLost. Lose reports whether a task was running.
func (w *Worker) Lose(resource string) (running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range store.Names(resource) {
		if r, ok := w.resources[name]; ok && r.lose != nil {
			r.lose()
			running = true
		}
	}
	return running
}

func (w *Worker) resource(name string) *resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resources == nil {
		w.resources = make(map[string]*resource)
	}
	r, ok := w.resources[name]
	if !ok {
		r = &resource{turn: make(chan struct{}, 1)}
		r.turn <- struct{}{}
		w.resources[name] = r
	}
	return r
}

// take takes the turn, unless ctx ends first: then it does not, even if the resource is free.
func (r *resource) take(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-r.turn:
		if ctx.Err() == nil {
			return nil
		}
		r.turn <- struct{}{}
	}
	return context.Cause(ctx)
}

// hold runs fn while nobody else holds the resource.
func (w *Worker) hold(ctx context.Context, name string, fn func(context.Context) error) (err error) {
	r := w.resource(name)
	if err := r.take(ctx); err != nil {
		return fmt.Errorf("queuetest: waiting for %s: %w", name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	// Like the real one: rising, and never small enough to be mistaken for a count.
	w.fence = max(w.fence+1, time.Now().UnixMicro())
	ctx = lease.WithFence(ctx, name, w.fence)
	var lost error
	r.lose = func() {
		lost = fmt.Errorf("queuetest: %s: %w", name, lock.ErrLost)
		cancel(lost)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		r.lose = nil
		w.mu.Unlock()
		if lost != nil {
			err = errors.Join(lost, err)
		}
		cancel(nil)
		r.turn <- struct{}{}
	}()
	return fn(ctx)
}
