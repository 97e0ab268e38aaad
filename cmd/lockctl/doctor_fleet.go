package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// lasts is how long the doctor waits before it looks again whether something is still so.
const lasts = 4 * time.Second

// ofWorkers is the advice where a server is missing. The entries of servers expire while Redis is away, or refuses writes: then
// the workers need not be at fault, and advice about them comes later.
func (x *examination) ofWorkers(advice string) string {
	if x.refuses {
		return "first have Redis take writes, as servers may run that cannot say so; then look again in 10 s"
	}
	return advice
}

// lookAgain is the advice where no server is known.
const lookAgain = "; if Redis was just away, look again in 10 s"

// tasksOf is how many tasks of a queue want a server, now or later.
func tasksOf(q inspect.Queue) int {
	return q.Pending + q.Active + q.Scheduled + q.Aggregating + q.Waiting + q.Retrying
}

// fleet checks the servers and the queues.
func (x *examination) fleet(context.Context) error {
	for _, q := range x.queues {
		switch n := tasksOf(q); {
		case q.Servers == 0 && n > 0:
			x.add(faulty, "queues", fmt.Sprintf("no server serves %s, which has %s", q.Name, count(n, "unfinished task")), "these tasks do not run",
				x.ofWorkers("start a worker that serves "+q.Name+", or see whether the name is misspelt"+lookAgain))
		case q.Paused && q.Pending+q.Waiting > 0:
			x.add(warning, "queues", fmt.Sprintf("%s is paused, and %s there", q.Name, countOf(q.Pending+q.Waiting, "task waits", "tasks wait")),
				"its tasks do not run until somebody resumes it; those that wait for a lock keep their places",
				"`lockctl queue resume "+inspect.ShellArg(q.Name)+"` resumes it")
		}
	}
	if len(x.servers) == 0 {
		x.add(warning, "servers", "no server runs", "no task runs, and nobody looks after the locks",
			x.ofWorkers("start the workers; if they run, compare their Redis with this one"+lookAgain))
		return nil
	}
	x.unless("queues", fmt.Sprintf("%s, and %s", count(len(x.queues), "queue"), count(len(x.servers), "server")))
	return nil
}

// elected checks that of the servers of the same queues one looks after them. It takes a moment until another one does
// after that one has died.
func (x *examination) elected(ctx context.Context) error {
	missing, all, err := x.unattended(ctx)
	if err == nil && len(missing) > 0 {
		if err = sleep.For(ctx, lasts); err == nil {
			missing, all, err = x.unattended(ctx)
		}
	}
	if err != nil {
		return err
	}
	for _, queues := range missing {
		x.add(faulty, "upkeep", "no server looks after "+queues,
			"tasks that failed, or are to run later, do not come, and nobody ends those of dead workers", x.ofWorkers("see the logs of the workers"))
	}
	if all > 0 {
		x.unless("upkeep", fmt.Sprintf("a server looks after %s", countOf(all, "set of queues", "sets of queues")))
	}
	return nil
}

// unattended returns the queues of guarded servers that no server looks after, and how many sets of queues such servers have.
func (x *examination) unattended(ctx context.Context) (missing []string, all int, err error) {
	if x.servers, err = x.Servers(ctx); err != nil {
		return nil, 0, err
	}
	seen := make(map[string]bool)
	for _, s := range x.servers {
		queues := strings.Join(s.Queues, ", ")
		if !s.Guarded || seen[queues] {
			continue
		}
		seen[queues] = true
		attended, err := x.attended(ctx, s.Queues)
		if err != nil {
			return nil, 0, err
		}
		if !attended {
			missing = append(missing, queues)
		}
	}
	return missing, len(seen), nil
}

// contended checks the locks for which somebody waits.
func (x *examination) contended(context.Context) error {
	for _, l := range x.locks {
		if l.Endless && l.State == inspect.Foreign {
			how, found := warning, l.Resource+": another program holds the lock, which has no TTL"
			if l.Waiting > 0 {
				how, found = faulty, found+"; "+count(l.Waiting, "waiter")
			}
			x.add(how, "locks", found, "if that program dies, the lock is never free again",
				"see whether the program lives; `lockctl release --reason TEXT "+inspect.ShellArg(l.Resource)+"` takes its lock")
		}
	}
	for _, l := range x.locks {
		waiting := countOf(l.Waiting, "task waits", "tasks wait")
		switch limit := l.Limit; {
		case l.Waiting == l.Paused:
		case limit != nil && limit.Holders == 0:
			x.add(warning, "locks", fmt.Sprintf("%s: %s has paused %s: %s", l.Resource, limit.By, limit.Pattern, limit.Reason),
				waiting+" until it is resumed", "`lockctl limit unset "+inspect.ShellArg(limit.Pattern)+"` resumes it")
		case l.Unserved > 0:
			x.add(warning, "locks", fmt.Sprintf("%s: not served %s; %s", l.Resource, x.unserved(l), waiting),
				"nobody holds the lock, and no server of the waiters' queues has had a free slot for them",
				"start more workers of these queues, or raise their concurrency; `lockctl show "+inspect.ShellArg(l.Resource)+"` shows who waits")
		}
	}
	if x.leftOut > 0 {
		x.add(warning, "locks", countOf(x.leftOut, "contended lock is", "contended locks are")+" not looked at, as there are too many",
			"these may be free and not served", "`lockctl show RESOURCE` looks at one lock")
	}
	x.unless("locks", fmt.Sprintf("%s in use, and all are served", count(len(x.locks), "lock")))
	return nil
}

// agreed checks that the servers of each queue have the same locks and rules, and that lockctl looks for these locks.
func (x *examination) agreed(ctx context.Context) error {
	const name = "settings of servers"
	servers, err := x.published(ctx)
	if err != nil {
		return err
	}
	for _, d := range taskredis.Disagreements(servers) {
		var all []string
		for _, v := range d.Values {
			var names []string
			for _, s := range v.Servers {
				names = append(names, s.String())
			}
			all = append(all, fmt.Sprintf("%s on %s", v.Value, some(names)))
		}
		how, means := warning, "what becomes of a task depends on the server that takes it"
		if d.Locks {
			how, means = faulty, "these servers do not see each other's locks: tasks of one resource run at once"
		}
		x.add(how, name, fmt.Sprintf("%s differs among the servers of %s: %s", d.Setting, some(d.Queues), strings.Join(all, "; ")), means,
			"give all servers of these queues the same setting, and restart those that have another")
	}
	own := strconv.Quote(x.settings.Queue.Lock.Prefix)
	for _, s := range servers {
		if s.Terms != nil && s.Terms.Prefix != own {
			x.add(warning, name, fmt.Sprintf("lock.prefix is %s on %v, and %s here", s.Terms.Prefix, s, own),
				"lockctl does not see the locks of that server, so what it says below of its tasks may be wrong",
				"run lockctl with the settings of that server, or --lock-prefix")
			break
		}
	}
	x.unless(name, "the servers of each queue have the same locks, limits and policies")
	return nil
}
