package inspect

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// waitPrefix begins the keys of the locks for which tasks wait if the locks themselves are in an
// external store.
const waitPrefix = "wait:"

// foreignHolder is the holder of a lock of another program, as lock.BusyError has it.
const foreignHolder = "another program"

// Show returns a lock and count of its waiters in order, from a position on, 1 for the first. The
// waiters of paused queues come last. It takes the time of one round trip, and of one more each if the
// label of the holder names a task, whose queue is then looked for, if the holder's work waits for a
// lock, and if somebody waits for a free lock.
func (i *Inspector) Show(ctx context.Context, resource string, from, count int) (Lock, []Waiter, error) {
	if err := store.CheckResource(resource); err != nil {
		return Lock{}, nil, fmt.Errorf("inspect: %w", err)
	}
	var queues []string
	var unlisted error
	var limit *Limit
	var unlimited error
	var listed sync.WaitGroup
	listed.Go(func() { queues, unlisted = asynqredis.Queues(ctx, i.rdb) })
	listed.Go(func() { limit, unlimited = i.limit(ctx, resource) })
	l, elsewhere, err := i.look(ctx, resource, redisstore.LookAt{From: max(0, from-1), Count: max(0, count)})
	listed.Wait()
	if err != nil {
		return Lock{}, nil, err
	}
	if unlisted != nil {
		return Lock{}, nil, fmt.Errorf("inspect: %w", unlisted)
	}
	if unlimited != nil {
		return Lock{}, nil, unlimited
	}
	waiters := make([]Waiter, len(l.Waiters))
	for n, w := range l.Waiters {
		waiters[n] = waiterOf(w, l.Now)
		if !w.Paused {
			waiters[n].Position = max(0, from-1) + n + 1
		}
	}
	lock := lockOf(resource, l, elsewhere)
	lock.Limit = limit
	if named, _ := parseHolder(lock.Holder); named != nil && lock.Leased() {
		t, err := i.find(ctx, queues, *named)
		if err != nil {
			return Lock{}, nil, err
		}
		if t != nil {
			lock.Task = &Task{Queue: t.Queue, ID: t.ID, Kind: t.Message.Kind}
		}
	}
	all, err := i.waits(ctx, l)
	if err != nil {
		return Lock{}, nil, err
	}
	lock.Waits = told(all)
	if lock.State == Free && lock.Waiting > 0 {
		_, lock.Rated, err = redisstore.NextStart(ctx, i.rdb, i.key(place{resource, elsewhere}), limit.rates())
		if err != nil {
			return Lock{}, nil, fmt.Errorf("inspect: %w", err)
		}
	}
	return lock, waiters, nil
}

// find looks for a task in queues, in one round trip. A task that a worker has comes before others of
// the same name. The result is nil if no queue has the task.
func (i *Inspector) find(ctx context.Context, queues []string, named Task) (*asynqredis.TaskLook, error) {
	found, err := asynqredis.LookTask(ctx, i.rdb, queues, named.ID)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var best *asynqredis.TaskLook
	for n := range found {
		t := &found[n]
		if (named.Kind == "" || named.Kind == t.Message.Kind) && (best == nil || t.State == "active" && best.State != "active") {
			best = t
		}
	}
	return best, nil
}

// look reads the lock for which tasks wait. With an external store that is not the lock of the resource
// itself.
func (i *Inspector) look(ctx context.Context, resource string, at redisstore.LookAt) (_ redisstore.Looked, elsewhere bool, _ error) {
	both := [2]redisstore.LookAt{at, at}
	both[0].Key, both[1].Key = i.cfg.Prefix+resource, waitPrefix+i.cfg.Prefix+resource
	got, err := redisstore.Look(ctx, i.rdb, both[:])
	if err != nil {
		return redisstore.Looked{}, false, fmt.Errorf("inspect: %w", err)
	}
	if used(got[1]) || !used(got[0]) && got[1].Fence > got[0].Fence {
		if got[1].Revoked == nil {
			got[1].Revoked = got[0].Revoked
		}
		return got[1], true, nil
	}
	return got[0], false, nil
}

// used reports whether somebody has the lock, or waits for it.
func used(l redisstore.Looked) bool { return l.State != redisstore.LookFree || l.Waiting+l.Paused > 0 }

// resourceOfKey returns the resource of the lock of key, and whether tasks wait there for a lock in an
// external store. It returns false for a lock of another prefix.
func (i *Inspector) resourceOfKey(key string) (resource string, elsewhere, ok bool) {
	rest, elsewhere := strings.CutPrefix(key, waitPrefix)
	resource, ok = strings.CutPrefix(rest, i.cfg.Prefix)
	if !ok && elsewhere {
		resource, ok = strings.CutPrefix(key, i.cfg.Prefix) // the prefix itself may begin with "wait:"
		elsewhere = false
	}
	return resource, elsewhere, ok
}

// lockOf returns a lock without the task that holds it.
func lockOf(resource string, l redisstore.Looked, elsewhere bool) Lock {
	found := Lock{
		Resource: resource, State: LockState(l.State), Left: Duration(l.Left), Endless: l.Endless, Since: utc(l.Since), Fence: l.Fence,
		Waiting: l.Waiting + l.Paused, Paused: l.Paused, WaitTime: Duration(l.WaitTime), Elsewhere: elsewhere,
	}
	if l.Revoking {
		found.State = Revoked
	}
	if l.First > 0 {
		found.OldestWait = Duration(max(0, l.Now.Sub(time.UnixMicro(l.First))))
	}
	switch found.State {
	case Held, Revoked:
		found.Holder = l.Holder
		_, found.Worker = parseHolder(l.Holder)
	case Reserved:
		found.Holder, found.Task = store.NextHolder, taskOf(l.Holder)
	case Foreign:
		found.Holder = foreignHolder
	case Free:
	}
	found.setPermits(l)
	if r := l.Revoked; r != nil {
		found.Revoked = &Revocation{At: utc(r.At), By: r.By, Reason: r.Reason, Holder: r.Holder}
	}
	return found
}

func waiterOf(w redisstore.LookedWaiter, now time.Time) Waiter {
	since := time.UnixMicro(w.Ticket)
	return Waiter{Task: taskOf(w.Name), Name: w.Name, Since: utc(since), Waited: Duration(max(0, now.Sub(since))), Paused: w.Paused}
}

// taskOf returns the task of a waiter's name, nil for a waiter that is no task.
func taskOf(waiter string) *Task {
	queue, id, ok := asynqredis.ParseWaiter(waiter)
	if !ok {
		return nil
	}
	return &Task{Queue: queue, ID: id}
}

// The label of a task as a holder, and that of any other holder which names none itself.
var (
	taskLabel   = regexp.MustCompile(`^(\S+) (.+) on (.+ \(pid \d+\))$`)
	workerLabel = regexp.MustCompile(`^(?:.* on )?(.+) \(pid (\d+)\)$`)
)

// parseHolder returns the task and the process that a holder's label names. That of a program may look
// like that of a task: "elected server on a1 (pid 7)" does. So the caller looks for the task. A kind
// with blanks, or a label that was shortened to 200 bytes, does not name a task.
func parseHolder(label string) (*Task, *Worker) {
	var task *Task
	if m := taskLabel.FindStringSubmatch(label); m != nil {
		task, label = &Task{Kind: m[1], ID: m[2]}, m[3]
	}
	m := workerLabel.FindStringSubmatch(label)
	if m == nil {
		return task, nil
	}
	pid, err := strconv.Atoi(m[2])
	if err != nil {
		return task, nil
	}
	return task, &Worker{Host: m[1], PID: pid}
}

// utc returns a time in UTC, and the zero time as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
