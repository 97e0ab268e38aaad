package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// A Batch has the attempts that run together: a first one, which has the lock, and its members, whose tasks came next in the line.
// A member has a goroutine and a handler of its own, as any attempt, and no slot. Its handler leaves the work to that of the first:
//
//	first:    More ──> Joined ──> work on all the tasks ──> End of each member ──> its own outcome, once all members are settled
//	members:           Join ───────────────────────────────────> what has become of its task
//
// The outcome of the first frees the lock. By then each member has left its place, or is back in it.
type Batch struct {
	first     *attempt
	members   []*Member // in the order of the line; the loop's
	joining   countdown // of members that have neither joined nor ended
	unsettled countdown // of members
	done      <-chan struct{}

	mu     sync.Mutex
	joined []*Member
	closed bool // whoever joins now is put back
}

// A Member is an attempt that runs under the lock of the first of its batch.
type Member struct {
	Item any // what its handler has handed over

	batch   *Batch
	attempt *attempt
	arrived sync.Once
	end     sync.Once
	ended   chan struct{}
	err     error
}

// A countdown waits until all that has begun is done.
type countdown struct {
	n    atomic.Int64
	zero chan struct{}
}

func (c *countdown) done() {
	if c.n.Add(-1) == 0 {
		close(c.zero)
	}
}

func newBatch(first *attempt, done <-chan struct{}) *Batch {
	b := &Batch{first: first, done: done, joining: countdown{zero: make(chan struct{})}, unsettled: countdown{zero: make(chan struct{})}}
	b.joining.n.Store(1) // until the members are known
	b.unsettled.n.Store(1)
	return b
}

// add adds a member. The loop calls it, and then complete.
func (b *Batch) add(a *attempt) *Member {
	m := &Member{batch: b, attempt: a, ended: make(chan struct{})}
	b.members = append(b.members, m)
	b.joining.n.Add(1)
	b.unsettled.n.Add(1)
	return m
}

// complete says that all members are known.
func (b *Batch) complete() {
	b.joining.done()
	b.unsettled.done()
}

// More begins a batch of this attempt and at most so many others: at tasks of its kind that come next in the line of its lock. A
// handler calls it once. It returns nil if the attempt has no lock or several, or its task no retries.
func (t *Task) More(most int) *Batch {
	a := t.attempt
	if a == nil || a.Lock == "" || t.Retry == 0 || t.batch != nil || len(store.SplitLocks(a.Lock)) > 1 {
		return nil
	}
	t.batch = newBatch(a, t.loop.done)
	t.loop.send(report{attempt: a, outcome: taskredis.Outcome{Name: a.Name, Kind: taskredis.More, Most: most, Like: t.Type}, batch: t.batch})
	return t.batch
}

// Joined waits until each member has joined, or has ended, or ctx ends. It returns those that have joined; of a nil Batch none.
func (b *Batch) Joined(ctx context.Context) []*Member {
	if b == nil {
		return nil
	}
	select {
	case <-b.joining.zero:
	case <-ctx.Done():
	case <-b.done:
	}
	return b.close()
}

// close puts back whoever joins from now on, and returns those that have joined.
func (b *Batch) close() []*Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.joined, func(x, y *Member) int { return cmp.Compare(x.attempt.Ticket, y.attempt.Ticket) })
	b.closed = true
	return b.joined
}

// End has Join return err. Only the first call counts.
func (m *Member) End(err error) {
	m.end.Do(func() {
		m.err = err
		close(m.ended)
	})
}

// endAll ends the members that have not ended yet, as the first has ended with err, and waits until all are settled. Those that
// came too late are put back.
func (b *Batch) endAll(err error) {
	for _, m := range b.close() {
		m.End(err)
	}
	select {
	case <-b.unsettled.zero:
	case <-b.done:
	}
}

// Lose ends an attempt that has lost a lock which the engine does not know of, as if it had lost its own. It has when Lose returns.
func (t *Task) Lose() {
	_ = t.loop.do(context.Background(), func() { t.loop.lose(t.attempt) }) // once the loop has ended nothing counts
}

// Lost reports whether an attempt has lost its lock. What its handler returns then does not count.
func (t *Task) Lost() bool { return t.attempt.lost.Load() }

// First returns the attempt under whose lock this one is to run as a member of a batch; nil if it is none.
func (t *Task) First() *taskredis.Taken {
	if t.attempt == nil || t.attempt.member == nil {
		return nil
	}
	return &t.attempt.member.batch.first.Taken
}

// FirstFence returns the fence under which a member runs: that of the handler of its batch.
func (t *Task) FirstFence() int64 { return t.attempt.member.batch.first.task.Fence }

// Join hands the item of a member to the first of its batch, and returns what that makes of it.
func (t *Task) Join(item any) error {
	m := t.attempt.member
	m.arrived.Do(func() {
		m.batch.mu.Lock()
		if m.Item = item; m.batch.closed {
			m.End(ErrNotBegun)
		} else {
			m.batch.joined = append(m.batch.joined, m)
		}
		m.batch.mu.Unlock()
		m.batch.joining.done()
	})
	select {
	case <-m.ended:
		return m.err
	case <-m.batch.done:
		return errShutdown
	}
}

// leave says that a member has ended, if it is one and has not joined.
func (m *Member) leave() {
	if m != nil {
		m.arrived.Do(m.batch.joining.done)
	}
}

// worker returns the attempt whose handler does the work: the first of the batch of a member, or the attempt itself.
func (a *attempt) worker() *attempt {
	if a.member != nil {
		return a.member.batch.first
	}
	return a
}

// members returns those of the batch that an attempt has begun.
func (a *attempt) members() []*Member {
	if a.batch == nil {
		return nil
	}
	return a.batch.members
}

// lock returns the key of the lock under which an attempt runs, "" for none.
func (a *attempt) lock() string { return cmp.Or(a.Lock, a.First.Lock) }

// cancelContext ends the context of an attempt, if that runs. Those of the members of its batch end before, as what its handler
// then says of them is judged by theirs.
func (a *attempt) cancelContext(cause error) {
	for _, m := range a.members() {
		m.attempt.cancelContext(cause)
	}
	if a.cancel != nil {
		a.cancel(cause)
	}
}

// batchComplete tells an attempt that the members of its batch are known.
func (l *loop) batchComplete(a *attempt) {
	a.outcome = taskredis.Outcome{}
	a.batch.complete()
}
