package inspect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/queue"
)

// Why explains a task. queue is asynq's, which may be a shard; empty for any. If several queues have a
// task with this id, Why explains the task of the first queue by name, and names the other queues.
// The error matches [ErrUnknownTask] if no queue has the task.
//
// Why reads the parts of an explanation one after the other. If the task moves meanwhile, they may not
// fit together.
func (i *Inspector) Why(ctx context.Context, queue, id string) (Explanation, error) {
	f, err := i.listQueues(ctx)
	if err != nil {
		return Explanation{}, err
	}
	in := f.queues
	if queue != "" {
		in = []string{queue}
	}
	found, err := taskredis.LookTask(ctx, i.rdb, in, id)
	if err != nil {
		return Explanation{}, fmt.Errorf("inspect: %w", err)
	}
	switch {
	case len(found) == 0 && queue != "":
		return Explanation{}, fmt.Errorf("%w: %s in queue %s", ErrUnknownTask, id, queue)
	case len(found) == 0:
		return Explanation{}, fmt.Errorf("%w: %s in any of %d queues", ErrUnknownTask, id, len(f.queues))
	}
	if f.servers, err = taskredis.Servers(ctx, i.rdb); err != nil {
		return Explanation{}, fmt.Errorf("inspect: %w", err)
	}
	x, err := f.examine(ctx, &found[0])
	if err == nil && x.resource != "" && !x.finished() {
		err = f.findLimit(ctx, x)
	}
	if err == nil {
		err = f.findLine(ctx, x)
	}
	if err != nil {
		return Explanation{}, err
	}
	e := f.explanation(x)
	for _, other := range found[1:] {
		e.AlsoIn = append(e.AlsoIn, other.Queue)
	}
	holder, err := f.holder(ctx, x, &e)
	if err != nil {
		return Explanation{}, err
	}
	e.Verdict = f.verdict(x, &e, holder)
	return e, nil
}

// examine finds out what a task does.
func (f *fleet) examine(ctx context.Context, t *taskredis.TaskLook) (*exam, error) {
	x := &exam{TaskLook: t, guarded: true}
	if err := f.findLock(ctx, x); err != nil {
		return nil, err
	}
	if t.State == "active" {
		if err := f.findWorker(ctx, x); err != nil {
			return nil, err
		}
	}
	x.state = x.stateOf()
	return x, nil
}

// findLock looks at the lock of a task. Of several, it is the first that keeps the task from its work, or else the first.
func (f *fleet) findLock(ctx context.Context, x *exam) error {
	x.resources = f.resourcesOf(x.Lock, x.Message)
	keys := store.SplitLocks(x.Lock)
	for n, resource := range x.resources {
		lock, err := f.look(ctx, resource, lockredis.LookAt{Queue: x.Queue, Waiter: x.ID})
		if err != nil {
			return err
		}
		lock.own(x.Message, x.First)
		keeps := f.keeps(x, &lock)
		if n > 0 && !keeps {
			continue
		}
		if x.resource, x.lock = resource, lock; len(keys) == len(x.resources) {
			x.key = keys[n]
		}
		if keeps {
			break
		}
	}
	return nil
}

// keeps reports whether one of several locks keeps a task from its work.
func (f *fleet) keeps(x *exam, lock *sight) bool {
	switch mine := lock.State == lockredis.LookHeld && isHolder(x.Message, x.First, lock.Holder); {
	case len(x.resources) == 1:
		return true
	case x.State == "active":
		return !mine
	case lock.Position > 1, lock.State == lockredis.LookForeign, lock.State != lockredis.LookFree && len(lock.Permits) == 0:
		return true
	}
	limit := f.limit(lock.resource)
	if limit == nil {
		return len(lock.Permits) > 0 // maybe: how many there are is not known
	}
	return len(lock.Permits) >= limit.Holders
}

// findWorker finds the worker of an active task.
func (f *fleet) findWorker(ctx context.Context, x *exam) error {
	worker, ok, err := taskredis.WorkerOf(ctx, f.rdb, f.servers, x.Queue, x.ID)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if ok {
		x.worker, x.started, x.guarded = &Worker{worker.Host, worker.PID}, worker.Since, worker.Guarded
	}
	if x.holds() { // the label is newer than a server's entry, which may be 5 s old
		if _, by := parseHolder(x.lock.Holder); by != nil {
			x.worker, x.started = by, x.lock.Since
		}
	}
	x.gone = x.Orphaned() || !f.lives(x.worker)
	return nil
}

// findLimit finds out what limits the lock of a task.
func (f *fleet) findLimit(ctx context.Context, x *exam) error {
	if x.limit = f.limit(x.resource); len(x.limit.rates()) == 0 || !x.waits() {
		return nil
	}
	looked, err := lockredis.Look(ctx, f.rdb, []lockredis.LookAt{{Key: f.key(x.lock.spot), Rates: x.limit.rates()}})
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	x.next = looked[0].Next
	return nil
}

// explanation returns the facts, without the task that holds the lock, and the verdict.
func (f *fleet) explanation(x *exam) Explanation {
	m := x.Message
	e := Explanation{
		Task: Task{Queue: x.Queue, ID: x.ID, Kind: m.Type}, State: x.state, Resource: x.resource, Line: x.line, Worker: x.worker, Started: utc(x.started),
		LeaseEnds: utc(x.Lease), Paused: x.Paused, Priority: priorityOf(m), Policy: m.Headers[queue.HeaderPolicy],
		Retried: m.Retried, Retries: m.Retry, Parks: x.Parks, Crashes: x.Crashes, Tolerated: f.tolerated(), Losses: x.Losses,
		LastError: x.Sentence, Failure: m.ErrorMsg, FailedAt: utc(unix(m.LastFailedAt)), Deadline: utc(unix(m.Deadline)),
	}
	if x.state == StateSnoozed {
		e.Failure = "" // the error is not of its own
	}
	if len(x.resources) > 1 {
		e.Resources = x.resources
	}
	e.Servers, _ = serving(f.servers, x.Queue)
	if x.resource != "" && !x.finished() {
		l := f.lockOf(&x.lock)
		for n := range l.Permits {
			l.Permits[n].Gone = l.Permits[n].State != Reserved && !f.lives(l.Permits[n].Worker)
			l.Gone = l.Gone || l.Permits[n].Gone
		}
		if x.holds() {
			if l.Gone = x.gone || !f.lives(l.Worker); x.First == "" {
				l.Task = &e.Task
			}
		}
		e.Lock, e.Position = &l, x.lock.Position
	}
	switch {
	case x.Ticket > 0 && x.resource != "" && x.State != "active":
		e.Since = utc(time.UnixMicro(x.Ticket).Add(time.Duration(e.Priority) * taskredis.HeadStart))
	case x.State == "pending" && x.Came.Unix() > 0:
		e.Since = utc(x.Came)
	}
	if !e.Since.IsZero() {
		e.Waited = Duration(max(0, x.Now.Sub(e.Since)))
	}
	switch x.State {
	case "pending":
		if e.Pending = x.Rank; x.Rank == 0 {
			e.PendingMore = taskredis.LookDepth
		}
	case "retry", "scheduled":
		e.Next = utc(x.At)
	}
	return e
}

// priorityOf returns the priority of a task, 0 if it has none or one that cannot be read.
func priorityOf(m *taskredis.Message) int {
	level, err := strconv.Atoi(m.Headers[queue.HeaderPriority])
	if err != nil || level < 0 || level > queue.MaxPriority {
		return 0
	}
	return level
}

// holder examines the task that holds the lock for which x waits, and says in e which one it is. It returns nil if the
// holder is no task, or no longer exists.
func (f *fleet) holder(ctx context.Context, x *exam, e *Explanation) (*exam, error) {
	l := e.Lock
	if !x.waits() || !l.Leased() || len(l.Permits) > 0 {
		return nil, nil //nolint:nilnil // no task, and no error
	}
	t, err := f.findHolder(ctx, f.queues, l.Holder)
	if err != nil || t == nil {
		return nil, err
	}
	h, err := f.examine(ctx, t)
	if err != nil {
		return nil, err
	}
	l.Task, l.Gone = &Task{Queue: h.Queue, ID: h.ID, Kind: h.Message.Type}, h.gone || !f.lives(l.Worker)
	return h, nil
}

// unix returns the time of so many seconds, zero for none.
func unix(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
