package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sidingq/siding/inspect"
)

// tasks checks the tasks of workers that died: one finding for all that nobody works on, and one for each that runs again.
func (x *examination) tasks(context.Context) error {
	var dead []inspect.Task
	retries := 0
	for _, o := range x.orphans {
		if !o.Orphaned {
			x.add(warning, "orphans", fmt.Sprintf("%s runs again after %s", taskIn(o.Task), countOf(o.Crashes, "worker crash", "worker crashes")),
				fmt.Sprintf("its worker died, or was cut off from Redis; the task itself may kill its workers; %d crashes use no retry", o.Tolerated),
				"see whether workers died, and their logs; "+whySays(o.Task))
			continue
		}
		if dead = append(dead, o.Task); o.UsesRetry {
			retries++
		}
	}
	if len(dead) > 0 {
		how, means := warning, "their workers are dead or cut off from Redis; they run again as soon as a guarded server of their queue has a free slot"
		if retries > 0 {
			how, means = faulty, means+"; "+countOf(retries, "task uses", "tasks use")+" a retry for that, or has none left and is archived"
		}
		names := make([]string, len(dead))
		for n, t := range dead {
			names[n] = taskIn(t)
		}
		x.add(how, "orphans", fmt.Sprintf("%s whose workers have gone: %s", count(len(dead), "task"), some(names)), means,
			x.ofWorkers("see whether workers died, and their logs; "+whySays(dead[0])))
	}
	x.unless("orphans", "every task that runs has its worker")
	return nil
}

// taskIn names a task and its queue.
func taskIn(t inspect.Task) string { return fmt.Sprintf("%s in %s", taskText(&t), t.Queue) }

// whySays is the advice to ask for a task.
func whySays(t inspect.Task) string { return "`lockctl why " + inspect.ShellArg(t.ID) + "` says more" }

// some lists the first few names.
func some(names []string) string {
	const few = 3
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}

// held checks the lines that a failed task holds.
func (x *examination) held(ctx context.Context) error {
	lines, leftOut, err := x.HeldLines(ctx)
	if err != nil {
		return err
	}
	for _, l := range lines {
		how, means := warning, "it goes on "+x.goesOn(l)
		if l.Stopped {
			how, means = faulty, "the task is archived, and the line does not go on by itself"
		}
		x.add(how, "lines", fmt.Sprintf("the line of %s waits for %s, which has failed: %s", l.Resource, taskIn(l.Task), l.Error),
			fmt.Sprintf("%s; %s behind it", means, countOf(l.Waiting, "task waits", "tasks wait")),
			fmt.Sprintf("mend the cause, then `lockctl run %s`; `lockctl archive --reason TEXT %[1]s` gives it up", inspect.ShellArg(l.Task.ID)))
	}
	if leftOut > 0 {
		x.add(warning, "lines", fmt.Sprintf("%s held, and not looked at, as there are too many", countOf(leftOut, "more line is", "more lines are")),
			"they come behind the others by when they go on, those that have stopped first", "set the others going, then look again")
	}
	x.unless("lines", "no line is held by a task that has failed")
	return nil
}

// goesOn says when a held line goes on that has not stopped.
func (a *app) goesOn(l inspect.HeldLine) string {
	if left := l.GoesOn.Sub(a.now()); left > 0 {
		return "in " + inspect.Duration(left).String()
	}
	return "now"
}
