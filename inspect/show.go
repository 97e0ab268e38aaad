package inspect

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// MostListed is the last position of which [Inspector.Show] tells who waits there: Redis has to read and sort all waiters up to it,
// and serves nobody meanwhile.
const MostListed = 1000

// Show returns a lock and count of its waiters in order, from a position on, 1 for the first; up to [MostListed]. It takes a few round
// trips, and one more each if the label of the holder names a task, which is then looked for, and for each queue whose
// tasks wait for a free lock.
func (i *Inspector) Show(ctx context.Context, resource string, from, count int) (Lock, []Waiter, error) {
	if err := store.CheckResource(resource); err != nil {
		return Lock{}, nil, fmt.Errorf("inspect: %w", err)
	}
	f, err := i.listQueues(ctx)
	if err != nil {
		return Lock{}, nil, err
	}
	first := min(max(0, from-1), MostListed)
	count = min(max(0, count), MostListed-first)
	s, err := f.look(ctx, resource, lockredis.LookAt{From: first, Count: count})
	if err != nil {
		return Lock{}, nil, err
	}
	waiters := make([]Waiter, len(s.Waiters))
	for n, w := range s.Waiters {
		since := time.UnixMicro(w.Ticket)
		waiters[n] = Waiter{Position: first + n + 1, Since: utc(since), Waited: Duration(max(0, s.Now.Sub(since)))}
		if w.Queue == "" {
			waiters[n].Name = w.Name
		} else {
			waiters[n].Task, waiters[n].Paused = &Task{Queue: w.Queue, ID: w.Name}, f.paused[w.Queue]
		}
	}
	lock := f.lockOf(&s)
	if lock.Leased() {
		t, err := i.findHolder(ctx, f.queues, lock.Holder)
		if err != nil {
			return Lock{}, nil, err
		}
		if t != nil {
			lock.Task = &Task{Queue: t.Queue, ID: t.ID, Kind: t.Message.Type}
		}
	}
	if lock.State != Free { // somebody gets on
		s.Lines = nil
	}
	for _, line := range s.Lines {
		held, _, err := i.heldLines(ctx, []string{line.Queue}, i.waitKey(spot{resource, s.elsewhere}, line.Queue))
		if err != nil {
			return Lock{}, nil, err
		}
		lock.Lines = append(lock.Lines, held...)
	}
	return lock, waiters, nil
}

// find looks for a task in queues, in one round trip. A task that a worker has comes before others of
// the same name. The result is nil if no queue has the task.
func (i *Inspector) find(ctx context.Context, queues []string, id string) (*taskredis.TaskLook, error) {
	found, err := taskredis.LookTask(ctx, i.rdb, queues, id)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var best *taskredis.TaskLook
	for n := range found {
		if t := &found[n]; best == nil || t.State == "active" && best.State != "active" {
			best = t
		}
	}
	return best, nil
}

// lockOf returns a lock without the task that holds it.
func (f *fleet) lockOf(s *sight) Lock {
	l := Lock{
		Resource: s.resource, State: LockState(s.State), Left: Duration(s.Left), Endless: s.Endless, Since: utc(s.Since), Fence: s.Fence,
		Waiting: s.Waiting(), Elsewhere: s.elsewhere, Limit: f.limit(s.resource), Rated: s.Rated,
	}
	if s.Revoking {
		l.State = Revoked
	}
	if l.Unserved = Duration(s.unserved()); l.Unserved > 0 {
		l.Ready = utc(s.ready)
	}
	first, all := int64(0), s.First // of those whose queues are not paused, and of all
	for _, line := range s.Lines {
		if f.paused[line.Queue] {
			l.Paused += line.Waiting
		} else if first == 0 || line.First < first {
			first = line.First
		}
		if line.First == all {
			all = 0 // the first of all is a task
		}
	}
	if all > 0 { // it is a goroutine
		first = all
	}
	if first = cmp.Or(first, s.First); first > 0 {
		l.OldestWait = Duration(max(0, s.Now.Sub(time.UnixMicro(first))))
	}
	switch l.State {
	case Held, Revoked:
		l.Holder = s.Holder
		_, l.Worker = parseHolder(s.Holder)
	case Reserved:
		l.Holder = store.NextHolder
	case Foreign:
		l.Holder = store.ForeignHolder
	case Free:
	}
	l.setPermits(&s.Looked)
	if r := s.Revoked; r != nil {
		l.Revoked = &Revocation{At: utc(r.At), By: r.By, Reason: r.Reason, Holder: r.Holder}
	}
	return l
}

// workerLabel is the label of a holder which does not choose another, with what is done there before " on ".
var workerLabel = regexp.MustCompile(`^(?:(.*) on )?(.+) \(pid (\d+)\)$`)

// parseHolder returns the task and the process that a holder's label names, "" and nil for none. The task is its id, or its
// kind, a blank and its id. The label of a
// program may look like that of a task, as "elected server on a1 (pid 7)" does. So the caller looks for the task. A
// label that was shortened to 200 bytes names nothing.
func parseHolder(label string) (task string, _ *Worker) {
	m := workerLabel.FindStringSubmatch(label)
	if m == nil {
		return "", nil
	}
	pid, err := strconv.Atoi(m[3])
	if err != nil {
		return m[1], nil
	}
	return m[1], &Worker{Host: m[2], PID: pid}
}

// findHolder returns the task that a holder's label names, nil for none. Kinds and ids may have blanks, so each end of the text
// may be the id.
func (i *Inspector) findHolder(ctx context.Context, queues []string, label string) (*taskredis.TaskLook, error) {
	text, _ := parseHolder(label)
	for id, more := text, text != ""; more; _, id, more = strings.Cut(id, " ") {
		t, err := i.find(ctx, queues, id)
		if err != nil || t != nil && names(text, t.Message) {
			return t, err
		}
	}
	return nil, nil //nolint:nilnil // no task, and no error
}

// names reports whether what a label says of a task, see parseHolder, is said of this one.
func names(text string, m *taskredis.Message) bool { return text == m.ID || text == m.Type+" "+m.ID }

// isHolder reports whether a label is that of a task on any host, or of the first task of the batch in which it runs, whose attempt
// this is.
func isHolder(m *taskredis.Message, first, label string) bool {
	text, _ := parseHolder(label)
	return names(text, m) || first != "" && lease.HolderOf(first) == label
}

// latest is the last second that a time may have in JSON.
var latest = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// utc returns a time in UTC, latest for a later one, and the zero time as it is.
func utc(t time.Time) time.Time {
	switch {
	case t.IsZero():
		return t
	case t.After(latest):
		return latest
	}
	return t.UTC()
}
