package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
)

// This file is what a Server adds to an attempt of the engine: which lock it needs, and what its error means. The engine
// calls, in this order, need before the handler; withLock, with the handler in it; and settled, once Redis knows.

// An attempt is a task that the server runs.
type attempt struct {
	*engine.Task

	waitedFor string   // the resource of a task that has waited for too long, and has no lock
	held      []int64  // fences of the locks that the engine has not taken, see elsewhere
	ends      []func() // what ends the members of its batch once it has ended itself
}

// attemptKey is the key under which the context of a handler carries its attempt.
type attemptKey struct{}

func (a *attempt) info() Info {
	return Info{ID: a.ID, Queue: a.Queue, Kind: a.Type, Resource: cmp.Or(a.Resource, a.waitedFor), Retried: a.Retried, Retries: a.Retry}
}

// isHolder reports whether a holder, as in [lock.BusyError], is an attempt at this task, or the first of its batch.
func (a *attempt) isHolder(holder string) bool {
	if first := a.First(); first != nil && holder == lease.HolderOf(first.Attempt) {
		return true
	}
	return strings.HasPrefix(strings.TrimPrefix(holder, a.Type+" "), a.ID+" on ")
}

// need says what a task needs before it may run. With an error it is archived. came is the resource with whose lock it came, if
// any.
func (s *Server) need(m *taskredis.Message, came string) (engine.Need, error) {
	// If that is not what its header says, it may have the right lock already.
	resource, err := s.resourceOf(m, came != "" && came != m.Headers[HeaderResource])
	if err != nil || resource == "" {
		return engine.Need{}, err
	}
	need := engine.Need{Resource: resource}
	if need.Priority, err = priorityOf(m); err != nil {
		return need, err
	}
	policy, err := s.policyOf(m)
	if err == nil && policy.compares() && len(store.Names(resource)) > 1 {
		err = fmt.Errorf("%s: policy: %s", m.Type, noComparison)
	}
	need.Policy = policy.judge(m)
	return need, err
}

// resourceOf returns the resource of a task, "" if the task is not guarded. The payload counts, as
// the payload or its [ResourceFunc] may have changed since the task got its header. A handler by [Handle] finds that out itself, so
// its payload is read here only if there is no header, or if that is doubtful.
func (s *Server) resourceOf(m *taskredis.Message, doubtful bool) (string, error) {
	resource, guarded := m.Headers[HeaderResource]
	if name, ok := s.cfg.Resources[m.Type]; ok {
		var err error
		if resource, err = name(m.Payload); err != nil {
			return "", fmt.Errorf("%s: resource: %w", m.Type, err)
		}
	} else if name, ok := s.typed[m.Type]; ok && (doubtful || !guarded) {
		resource = cmp.Or(name(m.Payload), resource)
	}
	if resource == "" && !guarded && s.cfg.Resources[m.Type] == nil {
		return "", nil
	}
	return checkResource(m.Type, resource)
}

// checkResource returns the resource of a task, or several, in one spelling.
func checkResource(kind, resource string) (string, error) {
	checked, err := store.CheckResources(resource)
	if err != nil {
		return resource, fmt.Errorf("%s: resource: %w", kind, err)
	}
	return checked, nil
}

// Permanent wraps the error of a handler to say that no retry can mend it. The task is archived at
// once, whatever retries it has left. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
}

// withLock returns what the engine calls for each attempt, with handler as the user's.
func (s *Server) withLock(handler engine.Handler) engine.Handler {
	next := func(ctx context.Context, t *engine.Task) error {
		if err := t.Begin(ctx); err != nil {
			return err
		}
		return handler(ctx, t)
	}
	return func(ctx context.Context, t *engine.Task) error {
		a := &attempt{Task: t}
		ctx = context.WithValue(ctx, attemptKey{}, a)
		defer a.endMembers()
		if waited, late := s.tooLate(a); late {
			return s.waitedTooLong(ctx, a, waited)
		}
		var err error
		switch {
		case t.Resource == "":
			err = s.unguarded(ctx, a, next)
		case s.outside && t.First() != nil: // the first of its batch has the lock
			a.held = []int64{t.FirstFence()}
			err = next(lease.WithFence(s.acquired(ctx, a, a.held[0]), a.Resource, a.held[0]), t)
		case s.outside:
			err = s.elsewhere(ctx, a, next)
		default:
			var held leases
			ctx, held = s.adopt(ctx, a)
			defer held.each((*lease.Lease).End)
			defer context.AfterFunc(ctx, func() {
				if errors.Is(context.Cause(ctx), store.ErrLost) {
					held.each((*lease.Lease).Lose)
				}
			})()
			err = next(s.acquired(ctx, a, t.Taken.Fence), t)
		}
		if _, ok := errors.AsType[*engine.OtherResourceError](err); ok && t.Acquired {
			s.settled(t, err, false) // the handler has seen nothing of this lock
			t.Acquired = false
		}
		return s.meaningOf(ctx, a, err)
	}
}

// A leases are those of the locks of an attempt.
type leases []*lease.Lease

func (l leases) each(do func(*lease.Lease)) {
	for _, one := range l {
		do(one)
	}
}

// fences returns the fences of an attempt's locks, in the order of its resources.
func (a *attempt) fences() []int64 {
	if a.held != nil {
		return a.held
	}
	if a.Taken.Fences != nil {
		return a.Taken.Fences
	}
	return []int64{a.Taken.Fence}
}

// adopt returns the leases of the locks that the engine has taken for an attempt, or for the first of its batch, and a context under
// them.
func (s *Server) adopt(ctx context.Context, a *attempt) (context.Context, leases) {
	holder := cmp.Or(a.First(), a.Taken)
	names, keys, fences := store.Names(a.Resource), store.SplitLocks(holder.Lock), a.fences()
	all := make(leases, len(names))
	for i, name := range names {
		all[i] = s.locks.Adopt(name, keys[i], holder.Attempt, fences[i], a.Trusted)
		ctx = all[i].Protect(ctx) //nolint:fatcontext // at most 16
	}
	return ctx, all
}

// unguarded runs a task that has no resource.
func (s *Server) unguarded(ctx context.Context, a *attempt, next engine.Handler) (err error) {
	s.observe(a.event(EventStarted))
	err = errNotReturned
	defer func() {
		ev := a.event(EventFinished)
		ev.Held, ev.Err = time.Since(a.Began), engine.OfShutdown(ctx, err)
		s.observe(ev)
	}()
	err = next(ctx, a.Task)
	s.noteUnguarded(a.Type)
	return err
}

// errNotReturned is the error that observers get for a handler that did not return.
var errNotReturned = errors.New("queue: the handler panicked, or ended its goroutine")

// meaningOf returns a handler's error as the engine understands it.
func (s *Server) meaningOf(ctx context.Context, a *attempt, err error) error {
	if a.Lost() {
		return s.lossOf(ctx, a)
	}
	if _, ok := errors.AsType[*engine.SnoozeError](err); ok {
		return err // the handler has not begun
	}
	givesUp := errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) // also if it wraps one of the other two
	if missing, ok := errors.AsType[*unavailableError](err); ok && !givesUp {
		s.shut(missing.error)
		return &engine.SnoozeError{Err: err, After: jitter(time.Second)}
	}
	if busy, ok := errors.AsType[*lock.BusyError](err); errors.Is(err, lock.ErrBusy) && !givesUp && (!ok || !a.isHolder(busy.Holder)) {
		// The handler wants a second lock. That this lock is busy is no failure of the task's own.
		return &engine.SnoozeError{Err: err, After: snoozeFor(time.Since(a.Began))}
	}
	if errors.Is(err, lock.ErrStale) {
		s.cfg.Logger.WarnContext(ctx, "a write of the task was refused, as somebody has held its lock since", a.attrs("error", err)...)
		return &engine.LostError{Err: err}
	}
	return err
}

// lostMeanwhile is lossOf for the engine, which has found the loss once the handler had returned.
func (s *Server) lostMeanwhile(ctx context.Context, t *engine.Task) *engine.LostError {
	return s.lossOf(ctx, &attempt{Task: t})
}

// lossOf logs that an attempt has lost its lock, and returns the error that says why.
func (s *Server) lossOf(ctx context.Context, a *attempt) *engine.LostError {
	held := time.Since(a.Began)
	reason := fmt.Sprintf("lost %s after %.1f s", store.Show(a.Resource), held.Seconds())
	by, why := s.revokedBy(ctx, a)
	if by == "" {
		s.logLoss(ctx, a, held)
	} else {
		s.cfg.Logger.WarnContext(ctx, "lock released by an operator while the task ran", a.attrs("held_s", held.Seconds(), "by", by, "reason", why)...)
		reason += ": " + by + " released it: " + why
	}
	return &engine.LostError{Err: fmt.Errorf("%s: %w", reason, lock.ErrLost), Last: by != ""}
}

// logLoss logs that an attempt has lost its lock. After a stall of Redis all tasks of a server have; so only the first of
// them is a warning. Those that follow within some seconds are for those who debug.
func (s *Server) logLoss(ctx context.Context, a *attempt, held time.Duration) {
	attrs := a.attrs("held_s", held.Seconds())
	if s.faults.allow("lock lost while the task ran") {
		s.cfg.Logger.WarnContext(ctx, "lock lost while the task ran", attrs...)
	} else {
		s.cfg.Logger.DebugContext(ctx, "lock lost while the task ran, as those of others", attrs...)
	}
}

// revokedBy returns who has revoked a lock of an attempt, and why; "" if nobody has, or if Redis does not answer.
func (s *Server) revokedBy(ctx context.Context, a *attempt) (by, reason string) {
	if s.cfg.Store != nil {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for i, name := range store.Names(a.Resource) {
		by, reason, err := lockredis.RevokedBy(ctx, s.rdb, s.locks.Key(name), a.fences()[i])
		if err != nil || by != "" {
			return by, reason
		}
	}
	return "", ""
}

// attrs returns what names the task in the log, and more.
func (a *attempt) attrs(more ...any) []any {
	return append([]any{"task_id", a.ID, "task_kind", a.Type, "queue", a.Queue, "resource", store.Show(a.Resource)}, more...)
}

// noteUnguarded logs, once a day for each kind, that its tasks run unguarded, where Resources guards
// other kinds. So a kind that is misspelt in Resources does not stay unknown. Of a kind with a handler by
// [Handle] the type of the task says that it is to be unguarded.
func (s *Server) noteUnguarded(kind string) {
	if len(s.cfg.Resources) == 0 || s.routes[kind] != nil {
		return
	}
	if s.unguardedKinds.allow(kind) {
		s.cfg.Logger.InfoContext(s.background, "a task runs unguarded, as it has no header and Resources does not have its kind",
			"task_kind", kind, "guarded_kinds", slices.Sorted(maps.Keys(s.cfg.Resources)))
	}
}

// logFailure logs a task's own failure, and what has become of the task.
func (s *Server) logFailure(ctx context.Context, t *engine.Task, outcome taskredis.Kind, err error) {
	log := s.cfg.Logger.With("task_id", t.ID, "task_kind", t.Type, "queue", t.Queue, "retried", t.Retried, "error", err)
	switch outcome {
	case taskredis.Archive:
		log.ErrorContext(ctx, "task archived")
	case taskredis.Done:
		log.InfoContext(ctx, "task deleted, as its handler has asked for that")
	default:
		log.InfoContext(ctx, "task failed and will be tried again")
	}
}

// jitter adds a random part to d, so that many tasks do not come all at once. The part is up to half a
// second or, if that is more, up to a twentieth of d.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(max(d/20, 500*time.Millisecond))
}

// snoozeFor returns for how long a task that has run for so long, and found a second lock busy, leaves its own resource to others.
// Two tasks that take the same two locks in opposite order meet again if they come back together, or if one comes back before
// the other has asked. So the time is random, over several of asynq's whole seconds, and up to twice as long as the task
// has run: at least every other time one of the two gets both locks.
func snoozeFor(ran time.Duration) time.Duration {
	return rand.N(min(max(3*time.Second, 2*ran), time.Minute))
}
