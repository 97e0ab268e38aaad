package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
)

const (
	// sweepEvery is how often the sweeper asks which locks are due for a scan.
	sweepEvery = 500 * time.Millisecond
	// scanEvery is how often the sweeper scans each lock for which somebody waits. More than 5,000
	// locks are scanned less often, but each also when its lease or reservation expires.
	scanEvery = time.Second
	perScan   = scanEvery / 5000
	// scanAllEvery is how often the sweeper scans all locks of a queue, and has paused waiters join
	// again, while another queue is paused. The sweeper may have missed a short pause of this
	// queue. It takes a twentieth of the time at most, as each time the waiters of the paused queue
	// join as well, and leave again.
	scanAllEvery = 5 * time.Second
	scanAllShare = 20
)

// A sweeper hands off each free lock for which a task of its queues waits. A lock is free after its
// holder died, a release was lost, or a waiter did not come. The sweeper reads the list of
// contended locks, which the scripts that park tasks keep. The sweeper also finds waiting tasks
// that have lost their positions, and has them join their wait queues again. In a Cluster, lock and
// task may be on different masters. A failover of one may undo half of a step.
type sweeper struct {
	*Guard

	paused     map[string]bool      // the queues that were paused at the last scan
	scanAllDue map[string]time.Time // from when on the sweeper scans all locks of each queue again
	cursors    map[string]string    // how far the sweeper has come with the waiting tasks of each queue
	limits     *limits.Table        // those of the last scan
	all        bool                 // the next scan is of all locks: wakes, or its own work, may have been lost
}

// sweep scans the locks that tasks of queues wait for, until ctx ends. sweep also wakes tasks for
// which somebody reserved a lock who could not wake them.
func (g *Guard) sweep(ctx context.Context, queues []string) {
	lost := make(chan struct{}, 1)
	var listening sync.WaitGroup
	listening.Go(func() { g.listen(ctx, queues, lost) })
	defer listening.Wait()
	s := &sweeper{
		Guard: g, paused: make(map[string]bool), scanAllDue: make(map[string]time.Time), cursors: make(map[string]string), all: true,
	}
	for ctx.Err() == nil {
		if now := g.limits.Load(); now != s.limits {
			s.all, s.limits = true, now // a limit that was raised has room for waiters
		}
		err := s.round(ctx, queues)
		s.all = err != nil
		g.fault(ctx, "free locks cannot be looked for", err)
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

// listen wakes the tasks of queues for which others have reserved locks, until ctx ends. lost receives
// a value when listen may have missed some.
func (g *Guard) listen(ctx context.Context, queues []string, lost chan<- struct{}) {
	groups := make([]string, len(queues))
	for i, queue := range queues {
		groups[i] = asynqredis.Group(queue)
	}
	heard := func() {
		select {
		case lost <- struct{}{}:
		default: // lost has a value already
		}
	}
	for {
		err := g.locks.ListenForTasks(ctx, groups, heard, func(r *store.Reservation) { g.wake(ctx, r) })
		if errors.Is(err, errors.ErrUnsupported) || sleep.For(ctx, sweepEvery) != nil {
			return // the sweeper's own scans find the locks
		}
	}
}

// round scans all locks that are due.
func (s *sweeper) round(ctx context.Context, queues []string) error {
	var errs []error
	for _, queue := range queues {
		errs = append(errs, s.rejoin(ctx, queue), s.roundOf(ctx, queue))
	}
	return errors.Join(errs...)
}

func (s *sweeper) roundOf(ctx context.Context, queue string) error {
	for {
		due, err := asynqredis.ListContended(ctx, s.rdb, queue, "")
		if err != nil {
			return err
		}
		resumed := s.paused[queue] && !due.Paused
		delete(s.paused, queue)
		if due.Paused {
			s.paused[queue] = true
		}
		if s.all || resumed || !due.Paused && s.somePaused() && time.Now().After(s.scanAllDue[queue]) {
			return s.scanAll(ctx, queue)
		}
		if err := s.scan(ctx, queue, due, !s.somePaused()); err != nil || len(due.Locks) < asynqredis.ContendedBatch {
			return err
		}
	}
}

// somePaused reports whether one of the queues is paused. While no queue is paused, each scan has
// paused waiters join again. The sweeper may have missed the end of a short pause.
func (s *sweeper) somePaused() bool { return len(s.paused) > 0 }

// scanAll scans all locks for which tasks of queue wait, also those that are not due.
func (s *sweeper) scanAll(ctx context.Context, queue string) error {
	begin := time.Now()
	for cursor := "0"; cursor != ""; {
		some, err := asynqredis.ListContended(ctx, s.rdb, queue, cursor)
		if err == nil {
			err = s.scan(ctx, queue, some, !some.Paused)
		}
		if err != nil {
			return err
		}
		cursor = some.Next
	}
	took := time.Since(begin)
	s.scanAllDue[queue] = time.Now().Add(max(scanAllEvery, scanAllShare*took))
	return nil
}

// scan hands off those of the locks that nobody holds, and records when the next scan is due.
func (s *sweeper) scan(ctx context.Context, queue string, some asynqredis.Contended, resumed bool) error {
	if len(some.Locks) == 0 {
		return nil
	}
	keys := make([]string, len(some.Locks))
	for i, l := range some.Locks {
		keys[i] = l.Key
	}
	found, err := s.locks.Sweep(ctx, keys, resumed)
	if err != nil {
		return err
	}
	scans := make([]asynqredis.Scan, len(found))
	for i, f := range found {
		for _, next := range f.Next {
			s.wake(ctx, next)
		}
		scans[i] = asynqredis.Scan{Lock: some.Locks[i], Over: !f.Waiting, In: max(scanEvery, time.Duration(some.All)*perScan)}
		if f.Left > 0 {
			scans[i].In = min(scans[i].In, f.Left+time.Millisecond)
		}
	}
	return asynqredis.Scanned(ctx, s.rdb, queue, scans)
}

// rejoin has waiting tasks that have lost their positions join their wait queues again. Each call
// checks some of the waiting tasks, the next ones each time. In a Cluster after a disturbance it
// checks all.
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
			// Those that were woken meanwhile are in no wait queue either, but wait no more.
			if some, err = asynqredis.StillWaiting(ctx, s.rdb, queue, missing); err != nil {
				return err
			}
			if _, err = s.missing(ctx, queue, some, true); err != nil {
				return err
			}
		}
		s.cursors[queue] = next
		more = s.all && !oneStep(s.rdb) && next != ""
	}
	return nil
}

// missing returns the ids of tasks that are in no wait queue. With rejoin they join theirs.
func (s *sweeper) missing(ctx context.Context, queue string, tasks []asynqredis.Waiting, rejoin bool) ([]string, error) {
	waiters := make([]store.Queued, len(tasks))
	for i, t := range tasks {
		waiters[i] = store.Queued{Key: t.Lock, Waiter: asynqredis.WaiterName(queue, t.ID), Ticket: t.Ticket}
	}
	found, err := s.locks.Missing(ctx, waiters, rejoin)
	var ids []string
	for i, missing := range found {
		if missing {
			ids = append(ids, tasks[i].ID)
		}
	}
	return ids, err
}
