package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/election"
	"github.com/sidingq/siding/internal/sleep"
)

const (
	// clocksApart is how far the clock of a server may be from this machine's.
	clocksApart = time.Second
	// sweeps is how soon the sweeper hands off a lock that has become free, with some time to spare.
	sweeps = 3 * time.Second
	// elects is how soon another server is elected after the elected one has died, with some time to
	// spare.
	elects = 8 * time.Second
	// electsAgain is how often the doctor looks for that.
	electsAgain = 500 * time.Millisecond
)

// lookAgain is the advice where no server is known. The entries of servers expire while Redis is away.
const lookAgain = "if Redis was just away, look again in 10 s"

// tasksOf is how many tasks of a queue want a server, now or later.
func tasksOf(q inspect.Queue) int {
	return q.Pending + q.Active + q.Scheduled + q.Aggregating + q.Waiting + q.Retrying
}

// fleet checks the servers and the queues.
func (x *examination) fleet(context.Context) error {
	since := len(x.checks)
	for _, q := range x.queues {
		switch n := tasksOf(q); {
		case q.Servers == 0 && n > 0:
			x.add(check{
				Check: "queues", Status: faulty, Found: fmt.Sprintf("no server serves %s, which has %s", q.Name, count(n, "unfinished task")),
				Means: "these tasks do not run", Do: "start a worker that serves " + q.Name + ", or see whether the name is misspelt; " + lookAgain,
			})
		case q.Paused && q.Pending+q.Waiting > 0:
			x.add(check{
				Check: "queues", Status: warning, Found: fmt.Sprintf("%s is paused, and %s there", q.Name, countOf(q.Pending+q.Waiting, "task waits", "tasks wait")),
				Means: "its tasks do not run until somebody resumes it; those that wait for a lock keep their positions",
				Do:    "resume it in the dashboard, or by `asynq queue unpause " + shellArg(q.Name) + "`",
			})
		}
	}
	if len(x.servers) == 0 {
		x.add(check{
			Check: "servers", Status: warning, Found: "no server runs", Means: "no task runs, and nobody looks after the locks",
			Do: "start the workers; if they run, compare their Redis with this one; " + lookAgain,
		})
	}
	x.unless(since, "queues", fmt.Sprintf("%s, and %s", count(len(x.queues), "queue"), count(len(x.servers), "server")))
	return nil
}

// clocks compares the servers' clocks with this machine's.
func (x *examination) clocks(ctx context.Context) error {
	since := len(x.checks)
	for _, s := range x.servers {
		off, err := x.clockOff(ctx, s)
		if err != nil {
			return err
		}
		if off.Abs() <= clocksApart {
			continue
		}
		way := "ahead of"
		if off < 0 {
			way = "behind"
		}
		x.add(check{
			Check: "clocks of servers", Status: faulty,
			Found: fmt.Sprintf("%s is %s %s this machine", workerText(&s.Worker), span(off.Abs()), way),
			Means: "its tasks may come too early or too late, and may be taken for those of a dead worker",
			Do:    "keep the clocks of all machines by NTP",
		})
	}
	x.unless(since, "clocks of servers", "within a second of this machine's")
	return nil
}

// clockOff is by how much the clock of a server is ahead of this machine's, at least. It looks
// twice, as the server may be writing its entry.
func (x *examination) clockOff(ctx context.Context, s inspect.Server) (off time.Duration, err error) {
	for range 2 {
		least, most, found, err := asynqredis.ClockOf(ctx, x.rdb, asynqredis.Server{Host: s.Host, PID: s.PID, ID: s.ID})
		if err != nil || !found {
			return 0, err
		}
		if least <= clocksApart && most >= -clocksApart {
			return 0, nil
		}
		if off = least; least < 0 {
			off = most
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return off, nil
}

// An electorate is the servers of the same queues.
type electorate struct {
	queues  []string
	elected string // empty if none is
}

// elected checks that of the servers of the same queues one is elected. None is elected before the first
// task was taken. It takes a while after that, and after an elected server has died.
func (x *examination) elected(ctx context.Context) error {
	var all []electorate
	for waited := time.Duration(0); ; waited += electsAgain {
		var err error
		if all, err = x.electorates(ctx); err != nil {
			return err
		}
		missing := slices.ContainsFunc(all, func(e electorate) bool { return e.elected == "" && x.busy(e.queues) })
		if !missing || waited >= elects {
			break
		}
		if err := sleep.For(ctx, electsAgain); err != nil {
			return err
		}
	}
	since := len(x.checks)
	for _, e := range all {
		c := check{Check: "elected server", Status: ok}
		switch queues := strings.Join(e.queues, ", "); {
		case e.elected != "":
			c.Found = fmt.Sprintf("for %s: %s", queues, e.elected)
		case !x.busy(e.queues):
			c.Found = fmt.Sprintf("none for %s, where no task runs or waits", queues)
		default:
			c.Status, c.Found = faulty, "none for "+queues
			c.Means = "nobody recovers the tasks of dead workers, and nobody hands off a lock that has expired"
			c.Do = "see the logs of the workers; compare lock.prefix of lockctl (" + x.settings.Queue.Guard.Lock.Prefix + ") with theirs"
		}
		x.add(c)
	}
	x.unless(since, "elected server", "none, as no guarded server runs")
	return nil
}

// electorates finds out who is elected, for each set of queues of a guarded server.
func (x *examination) electorates(ctx context.Context) (all []electorate, _ error) {
	for _, s := range x.servers {
		if !s.Guarded {
			continue
		}
		i := slices.IndexFunc(all, func(e electorate) bool { return slices.Equal(e.queues, s.Queues) })
		if i < 0 {
			i, all = len(all), append(all, electorate{queues: s.Queues})
		}
		if all[i].elected != "" {
			continue
		}
		var err error
		if all[i].elected, err = x.electedOf(ctx, s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// electedOf names the server that is elected for the queues of a server; "" if none is. A process with
// several servers stands for the queues of all of them.
func (x *examination) electedOf(ctx context.Context, s inspect.Server) (string, error) {
	var together []string
	for _, other := range x.servers {
		if other.Worker == s.Worker {
			together = append(together, other.Queues...)
		}
	}
	slices.Sort(together)
	for _, queues := range [][]string{s.Queues, slices.Compact(together)} {
		for _, recovers := range []bool{true, false} {
			lock, _, err := x.Show(ctx, election.Resource(queues, recovers), 1, 0)
			if err != nil {
				return "", err
			}
			if lock.Leased() {
				return strings.TrimPrefix(lock.Holder, "elected server on "), nil
			}
		}
	}
	return "", nil
}

// busy reports whether one of the queues has tasks that need an elected server.
func (x *examination) busy(queues []string) bool {
	return slices.ContainsFunc(x.queues, func(q inspect.Queue) bool {
		return slices.Contains(queues, q.Name) && q.Active+q.Waiting > 0
	})
}

// contended checks the locks for which somebody waits.
func (x *examination) contended(ctx context.Context) error {
	since := len(x.checks)
	for _, l := range x.locks {
		if l.Endless && l.State == inspect.Foreign {
			c := check{
				Check: "locks", Status: warning, Found: l.Resource + ": another program holds the lock, which has no TTL",
				Means: "if that program dies, the lock is never free again", Do: "see whether the program lives; `lockctl release " + shellArg(l.Resource) + "` takes its lock",
			}
			if l.Waiting > 0 {
				c.Status = faulty
				c.Found += fmt.Sprintf("; %s", count(l.Waiting, "waiter"))
			}
			x.add(c)
		}
	}
	free, err := x.stuck(ctx)
	if err != nil {
		return err
	}
	for _, l := range free {
		shown, _, err := x.Show(ctx, l.Resource, 1, 0)
		if err != nil {
			return err
		}
		if limit := shown.Limit; limit != nil && limit.Holders == 0 {
			x.add(check{
				Check: "locks", Status: warning, Found: fmt.Sprintf("%s: %s has paused %s: %s", l.Resource, limit.By, limit.Pattern, limit.Reason),
				Means: countOf(l.Waiting, "task waits", "tasks wait") + " until it is resumed", Do: "`lockctl limit unset " + shellArg(limit.Pattern) + "` resumes it",
			})
			continue
		}
		if shown.State != inspect.Free || shown.Rated {
			continue // it was handed off just now, or the waiters may wait for their time
		}
		x.add(check{
			Check: "locks", Status: faulty,
			Found: fmt.Sprintf("%s: nobody holds the lock, and %s, the first for %s", l.Resource, countOf(l.Waiting, "task waits", "tasks wait"), oldestOf(l)),
			Means: "nobody hands the lock off: no server is elected, or its queues are not those of the waiters", Do: "`lockctl show " + shellArg(l.Resource) + "` shows who waits; start a guarded server of their queues",
		})
	}
	x.unless(since, "locks", fmt.Sprintf("%s in use, and none is stuck", count(len(x.locks), "lock")))
	return nil
}

// stuck returns the locks that nobody holds although somebody has waited for a while. A lock that has
// just expired looks so, too. So stuck looks again after the time that the sweeper takes.
func (x *examination) stuck(ctx context.Context) ([]inspect.Lock, error) {
	again := func(ctx context.Context) ([]inspect.Lock, error) {
		list, err := x.Held(ctx)
		return stuckOf(list.Locks), err
	}
	return lasting(ctx, stuckOf(x.locks), again, func(a, b inspect.Lock) bool { return a.Resource == b.Resource })
}

func stuckOf(locks []inspect.Lock) (stuck []inspect.Lock) {
	for _, l := range locks {
		if l.State == inspect.Free && l.Waiting > l.Paused && time.Duration(l.OldestWait) > 2*time.Second {
			stuck = append(stuck, l)
		}
	}
	return stuck
}

// lasting returns which of the first findings are found again after the time that the sweeper takes.
func lasting[T any](ctx context.Context, first []T, again func(context.Context) ([]T, error), same func(a, b T) bool) ([]T, error) {
	if len(first) == 0 {
		return nil, nil
	}
	if err := sleep.For(ctx, sweeps); err != nil {
		return nil, err
	}
	found, err := again(ctx)
	return slices.DeleteFunc(found, func(b T) bool {
		return !slices.ContainsFunc(first, func(a T) bool { return same(a, b) })
	}), err
}
