package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// Times of upkeep.
const (
	// askEvery is how often a server asks whether the elected one has gone, and tries again after an error.
	askEvery = time.Second
	// lookGap is the shortest time between two looks at a queue, however much is due.
	lookGap = 10 * time.Millisecond
	// peekEvery is how often 16 queues are asked for pending tasks; in a Cluster, where each takes a call, 4. With more
	// queues that is done less often, as long as it is done once a second.
	peekEvery      = 25 * time.Millisecond
	peeksOfRedis   = 16
	peeksOfCluster = 4
	// A queue that has no idle server, or is paused, is left out for so long: its servers fetch by themselves when they
	// have a slot, or when they may.
	peekBusyAfter, peekPausedAfter = 100 * time.Millisecond, 500 * time.Millisecond
	// mendEvery is how often all queues are gone through for what was lost. A call takes some 50 tasks, and the next one
	// comes after mendPause; or after mendGap, if something was lost, as there may be much more.
	mendEvery, mendPause, mendGap = 10 * time.Second, 100 * time.Millisecond, 10 * time.Millisecond
	never                         = time.Hour
)

// An upkeep looks after the queues of a server. It forwards the tasks whose time has come, finds pending tasks that nobody
// has told of, ends tasks whose servers have died, deletes what has expired, and repairs what was lost. It takes no
// tasks, but sees to it that somebody does. Of the servers with the same queues the elected one does this for all. Two
// that do it do no harm. When it has died, the next one begins within four seconds.
type upkeep struct {
	cfg       *Config
	calls     *taskredis.Upkeep
	peekEvery time.Duration
	found     func(queues ...string) // tells this server that it should fetch from these; must not wait
	logger    *slog.Logger

	// The rest belongs to the goroutine of run.
	elected                bool
	look, ends, peek, mend duty
	troubles               troubles

	todo    []string  // queues that this round of looks has still to look at
	next    int64     // when something is due in the others, in µs of Redis' clock; -1 for never
	clean   bool      // this round deletes
	cleanAt time.Time // when one does that again
	cut     bool      // this round looks for what is due too late
	stepped bool      // Redis' clock may have stepped back since it began
	clock   int64     // Redis' clock
	clockAt time.Time // when it was that

	ended  []leases               // queues with leases that have ended
	asking chan taskredis.Outcome // functions of the user that have not answered yet about a crash; nil for none
	peeked int                    // how many queues this round of peeks has asked
	quiet  map[string]time.Time   // queues that peeks leave out, and until when
	cursor taskredis.MendCursor
	mended taskredis.Mended // in this round
}

// A duty is done time and again, by a short call each time.
type duty struct {
	do     func(context.Context) (next time.Duration, err error)
	at     time.Time
	outage outage
}

// newUpkeeps returns what looks after the queues of a server: on one Redis one for all, in a Cluster one for each queue.
func newUpkeeps(cfg *Config, session string, found func(queues ...string)) []*upkeep {
	queues := slices.Sorted(maps.Keys(cfg.Queues))
	if !cfg.Cluster {
		return []*upkeep{newUpkeep(cfg, session, "", queues, peekRound(len(queues), peeksOfRedis)/time.Duration(roundTrips(queues)), found)}
	}
	all := make([]*upkeep, len(queues))
	for i, queue := range queues {
		all[i] = newUpkeep(cfg, session, queue, []string{queue}, peekRound(len(queues), peeksOfCluster), found)
	}
	return all
}

// peekRound is the time in which all queues are asked for pending tasks.
func peekRound(queues, atOnce int) time.Duration {
	return min(time.Second, peekEvery*time.Duration(max(queues, atOnce))/time.Duration(atOnce))
}

// roundTrips is how many calls it takes to look at all of the queues.
func roundTrips(queues []string) int {
	return (len(queues) + taskredis.MostQueues - 1) / taskredis.MostQueues
}

func newUpkeep(cfg *Config, session, scope string, queues []string, every time.Duration, found func(queues ...string)) *upkeep {
	u := &upkeep{
		calls: &taskredis.Upkeep{
			Redis: cfg.Redis, Session: session, Scope: scope, Queues: queues, TTL: cfg.TTL, Crashes: cfg.Crashes, NoRetriesToo: cfg.NoRetriesToo,
		},
		cfg: cfg, peekEvery: every, found: found, logger: cfg.Logger,
		troubles: troubles{logger: cfg.Logger}, quiet: make(map[string]time.Time),
	}
	u.look.do, u.look.outage = u.lookAtSome, outage{logger: u.logger, fails: "queues cannot be looked after", works: "queues are looked after again"}
	u.ends.do, u.ends.outage = u.endSome, outage{logger: u.logger, fails: "tasks of servers that have died cannot be ended", works: "tasks of servers that have died are ended again"}
	u.peek.do, u.peek.outage = u.peekAtSome, outage{logger: u.logger, fails: "pending tasks cannot be looked for", works: "pending tasks are looked for again"}
	u.mend.do, u.mend.outage = u.mendSome, outage{logger: u.logger, fails: "lost tasks cannot be looked for", works: "lost tasks are looked for again"}
	return u
}

// run does upkeep until ctx ends.
func (u *upkeep) run(ctx context.Context) {
	for sleep.For(ctx, u.turn(ctx)) == nil {
	}
	if u.elected { // the others need not wait until its time is over
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = u.calls.Resign(ctx)
	}
}

// turn does each duty that is due once, and returns how long there is nothing to do.
func (u *upkeep) turn(ctx context.Context) time.Duration {
	next := time.Now().Add(never)
	for _, d := range []*duty{&u.look, &u.ends, &u.peek, &u.mend} {
		if !time.Now().Before(d.at) {
			again, err := d.do(ctx)
			if d.outage.saw(ctx, err); err != nil {
				again = max(again, askEvery)
			}
			d.at = time.Now().Add(again)
		}
		if !u.elected {
			return time.Until(u.look.at)
		}
		if d.at.Before(next) {
			next = d.at
		}
	}
	return time.Until(next)
}

// lookAtSome looks at the next queues, or asks who is elected.
func (u *upkeep) lookAtSome(ctx context.Context) (time.Duration, error) {
	sent := time.Now()
	if u.elected && len(u.todo) == 0 { // a new round
		u.todo, u.next = slices.Clone(u.calls.Queues), -1
		u.cut, u.stepped = u.stepped, false
		if u.clean = !sent.Before(u.cleanAt); u.clean {
			u.cleanAt = sent.Add(u.cfg.JanitorInterval)
		}
	}
	l := taskredis.Look{Queues: u.todo[:min(len(u.todo), taskredis.MostQueues)], Cut: u.cut}
	if u.clean {
		l.Clean = u.cfg.JanitorBatchSize
	}
	is, err := u.calls.Look(ctx, l)
	if err != nil || !is.Elected {
		u.elected, u.todo = false, nil
		return askEvery, err
	}
	u.readClock(ctx, sent, is.Now)
	if !u.elected {
		u.elected, u.stepped = true, true // nobody may have noticed a step before
		u.ends.at, u.peek.at, u.mend.at = sent, sent, sent
		return 0, nil
	}
	u.todo = append(u.todo[len(l.Queues):], is.Unfinished...)
	u.tell(is.Found)
	u.troubles.found(ctx, is.Troubles)
	for _, queue := range is.Ended {
		if !slices.ContainsFunc(u.ended, func(l leases) bool { return l.queue == queue }) {
			u.ended = append(u.ended, leases{queue: queue})
			u.ends.at = sent
		}
	}
	if is.Next >= 0 && (u.next < 0 || is.Next < u.next) {
		u.next = is.Next
	}
	if len(u.todo) > 0 {
		return 0, nil
	}
	again := min(u.cfg.DelayedTaskCheckInterval, taskredis.ElectedFor/3) // if nothing is due before
	if u.next >= 0 {
		again = min(again, time.Duration(u.next-is.Now)*time.Microsecond)
	}
	return max(again, lookGap*time.Duration(roundTrips(u.calls.Queues))), nil
}

// readClock notices when Redis' clock steps back. A late answer looks like a step forward.
func (u *upkeep) readClock(ctx context.Context, sent time.Time, clock int64) {
	back := sent.Sub(u.clockAt) - time.Duration(clock-u.clock)*time.Microsecond
	if u.clock > 0 && back > time.Second {
		u.stepped = true
		u.logger.WarnContext(ctx, "Redis' clock has stepped back", "by_s", back.Seconds())
	}
	u.clock, u.clockAt = clock, time.Now()
}

// peekAtSome looks for pending tasks in the next queues.
func (u *upkeep) peekAtSome(ctx context.Context) (time.Duration, error) {
	now, all := time.Now(), u.calls.Queues
	if u.peeked >= len(all) {
		u.peeked = 0
	}
	var queues, found []string
	for _, queue := range all[u.peeked:min(u.peeked+taskredis.MostQueues, len(all))] {
		u.peeked++
		if !now.Before(u.quiet[queue]) {
			queues = append(queues, queue)
		}
	}
	if len(queues) == 0 {
		return u.peekEvery, nil
	}
	peeked, err := u.calls.Peek(ctx, queues)
	for queue, is := range peeked {
		switch is {
		case taskredis.Empty:
		case taskredis.Paused:
			u.quiet[queue] = now.Add(peekPausedAfter)
		case taskredis.Busy:
			u.quiet[queue] = now.Add(peekBusyAfter)
			found = append(found, queue)
		case taskredis.Woken:
			found = append(found, queue)
		}
	}
	u.tell(found)
	return u.peekEvery, err
}

// mendSome repairs what was lost in a part of the queues.
func (u *upkeep) mendSome(ctx context.Context) (time.Duration, error) {
	m, err := u.calls.Mend(ctx, &u.cursor)
	u.troubles.found(ctx, m.Troubles)
	u.mended.Waiting += m.Waiting
	u.mended.Active += m.Active
	switch {
	case !m.Done && m.Waiting > 0:
		return mendGap, err
	case !m.Done:
		return mendPause, err
	case u.mended.Waiting+u.mended.Active > 0:
		u.logger.WarnContext(ctx, "tasks had lost their places, as Redis has lost keys, and were put back",
			"waiting", u.mended.Waiting, "active", u.mended.Active)
	}
	u.mended = taskredis.Mended{}
	return mendEvery, err
}

func (u *upkeep) tell(queues []string) {
	if len(queues) > 0 {
		u.found(queues...)
	}
}
