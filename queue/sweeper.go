package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

const (
	// sweepEvery is how often the sweeper asks which locks it is to look at.
	sweepEvery = 500 * time.Millisecond
	// lookEvery is how often it looks at each lock for which somebody waits. Where there are
	// more than 5,000 it is less often, but also when what the lock holds runs out.
	lookEvery = time.Second
	perLook   = lookEvery / 5000
	// lookAtAllEvery is how often it looks at all locks of a queue, and brings back those who were set
	// aside, while another queue is paused: a short pause of this one may have passed unseen.
	lookAtAllEvery = 5 * time.Second
)

// A sweeper sees to it that no lock stands free while a task of its queues waits for it: it passes
// on the locks of holders that died, of releases that were lost, and of waiters that did not
// come. It goes by the list of contended locks, which tasks enter when they are parked. And it
// puts waiting tasks back into their lines that have lost their places: where lock and task are
// on different masters of a Cluster, a failover may take back a half of what was done.
type sweeper struct {
	*Guard

	apart       bool                 // locks and tasks may be on different masters
	paused      map[string]bool      // the queues that were, when it last looked
	lookedAtAll map[string]time.Time // when it last looked at all locks of each queue
	cursors     map[string]string    // how far it has come with the waiting tasks of each queue
	all         bool                 // it is to look at all locks: calls, or its own work, may have been lost
}

// sweep looks after the locks that tasks of queues wait for, until ctx ends. It also calls
// tasks whose turn came by a release of somebody who could not call them.
func (g *Guard) sweep(ctx context.Context, queues []string) {
	lost := make(chan struct{}, 1)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		g.listen(ctx, queues, lost)
	}()
	defer func() { <-listening }()
	_, cluster := g.rdb.(*redis.ClusterClient)
	s := &sweeper{
		Guard: g, apart: cluster, paused: make(map[string]bool), lookedAtAll: make(map[string]time.Time), cursors: make(map[string]string), all: true,
	}
	for ctx.Err() == nil {
		err := s.round(ctx, queues)
		s.all = err != nil
		if err != nil && ctx.Err() == nil {
			g.faults.fault(ctx, g.cfg.Logger, "free locks cannot be looked for", err)
		}
		timer := time.NewTimer(sweepEvery)
		select {
		case <-lost:
			s.all = true
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// listen calls the tasks of queues whose turn others tell of, until ctx ends. lost is told when
// it may have missed some.
func (g *Guard) listen(ctx context.Context, queues []string, lost chan<- struct{}) {
	groups := make([]string, len(queues))
	for i, queue := range queues {
		groups[i] = asynqredis.Group(queue)
	}
	heard := func() {
		select {
		case lost <- struct{}{}:
		default: // it has been told already
		}
	}
	for {
		err := g.locker.ListenForTasks(ctx, groups, heard, func(r *lock.Reservation) { g.call(ctx, r) })
		if errors.Is(err, errors.ErrUnsupported) || sleep.For(ctx, sweepEvery) != nil {
			return // the sweeper's own looks have to do
		}
	}
}

// round looks at all locks whose time has come.
func (s *sweeper) round(ctx context.Context, queues []string) error {
	var errs []error
	for _, queue := range queues {
		errs = append(errs, s.rejoin(ctx, queue), s.roundOf(ctx, queue))
	}
	return errors.Join(errs...)
}

func (s *sweeper) roundOf(ctx context.Context, queue string) error {
	for {
		due, err := asynqredis.Due(ctx, s.rdb, queue)
		if err != nil {
			return err
		}
		resumed := s.paused[queue] && !due.Paused
		s.paused[queue] = due.Paused
		if s.all || resumed || !due.Paused && s.somePaused() && time.Since(s.lookedAtAll[queue]) > lookAtAllEvery {
			return s.lookAtAll(ctx, queue)
		}
		if err := s.lookAt(ctx, queue, due, !s.somePaused()); err != nil || len(due.Locks) < asynqredis.ContendedBatch {
			return err
		}
	}
}

// somePaused reports whether one of the queues is. While none is, each look brings back those who
// were set aside: of a short pause the sweeper has not seen that it ended.
func (s *sweeper) somePaused() bool {
	for _, paused := range s.paused {
		if paused {
			return true
		}
	}
	return false
}

// lookAtAll looks at all locks for which tasks of queue wait, whatever their time.
func (s *sweeper) lookAtAll(ctx context.Context, queue string) error {
	for cursor := "0"; cursor != ""; {
		some, err := asynqredis.All(ctx, s.rdb, queue, cursor)
		if err == nil {
			err = s.lookAt(ctx, queue, some, !some.Paused)
		}
		if err != nil {
			return err
		}
		cursor = some.Next
	}
	s.lookedAtAll[queue] = time.Now()
	return nil
}

// lookAt passes on those of the locks that nobody holds, and says when to look again.
func (s *sweeper) lookAt(ctx context.Context, queue string, some asynqredis.Contended, resumed bool) error {
	if len(some.Locks) == 0 {
		return nil
	}
	keys := make([]string, len(some.Locks))
	for i, l := range some.Locks {
		keys[i] = l.Key
	}
	found, err := s.locker.Sweep(ctx, keys, resumed)
	if err != nil {
		return err
	}
	looks := make([]asynqredis.Look, len(found))
	for i, f := range found {
		if f.Next != nil {
			s.call(ctx, f.Next)
		}
		looks[i] = asynqredis.Look{Lock: some.Locks[i], Over: !f.Waiting, In: max(lookEvery, time.Duration(some.All)*perLook)}
		if f.Left > 0 {
			looks[i].In = min(looks[i].In, f.Left+time.Millisecond)
		}
	}
	return asynqredis.Looked(ctx, s.rdb, queue, looks)
}

// rejoin puts tasks that have lost their places back into their lines. It looks at some of those
// that wait, the next ones each time; or at all, where a failover may have cost many their places.
func (s *sweeper) rejoin(ctx context.Context, queue string) error {
	for more := true; more; {
		some, next, err := asynqredis.AllWaiting(ctx, s.rdb, queue, cmp.Or(s.cursors[queue], "0"))
		if err != nil {
			return err
		}
		missing, err := s.missing(ctx, queue, some, false)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			// Those who were called meanwhile are in no line either, but wait no more.
			if some, err = asynqredis.StillWaiting(ctx, s.rdb, queue, missing); err != nil {
				return err
			}
			if _, err = s.missing(ctx, queue, some, true); err != nil {
				return err
			}
		}
		s.cursors[queue] = next
		more = s.all && s.apart && next != ""
	}
	return nil
}

// missing returns the ids of tasks that are in no line. rejoin puts them into theirs.
func (s *sweeper) missing(ctx context.Context, queue string, tasks []asynqredis.Waiting, rejoin bool) ([]string, error) {
	places := make([]store.Place, len(tasks))
	for i, t := range tasks {
		places[i] = store.Place{Key: t.Lock, Waiter: asynqredis.WaiterName(queue, t.ID), Ticket: t.Ticket}
	}
	found, err := s.locker.Missing(ctx, places, rejoin)
	ids := make([]string, len(found))
	for i, n := range found {
		ids[i] = tasks[n].ID
	}
	return ids, err
}
