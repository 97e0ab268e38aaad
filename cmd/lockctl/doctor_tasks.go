package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sidingq/siding/inspect"
)

// tasks checks the tasks of workers that died: one finding for each worker.
func (x *examination) tasks(context.Context) error {
	var processes []string
	dead := make(map[string][]inspect.Orphan)
	for _, o := range x.orphans {
		if o.Orphaned {
			if dead[o.Process] == nil {
				processes = append(processes, o.Process)
			}
			dead[o.Process] = append(dead[o.Process], o)
			continue
		}
		x.add(warning, "orphans", fmt.Sprintf("%s runs again after %s", taskIn(o.Task), countOf(o.Crashes, "worker crash", "worker crashes")),
			fmt.Sprintf("its worker died, or was cut off from Redis; the task itself may kill its workers; %d crashes use no retry", o.Tolerated),
			"see whether workers died, and their logs; "+whySays(o.Task))
	}
	for _, process := range processes {
		x.dead(dead[process])
	}
	x.unless("orphans", "every task that runs has its worker")
	return nil
}

// dead adds the finding of a worker that died or is cut off with these tasks.
func (x *examination) dead(tasks []inspect.Orphan) {
	var names, unserved, means []string
	again, retries := 0, 0
	for _, o := range tasks {
		names = append(names, taskIn(o.Task))
		switch {
		case !x.guarded(o.Task.Queue):
			unserved = append(unserved, o.Task.Queue)
		case o.UsesRetry:
			retries++
		default:
			again++
		}
	}
	how, do := warning, whySays(tasks[0].Task)
	if again > 0 {
		means = append(means, countOf(again, "task runs", "tasks run")+" again as soon as a slot is free")
	}
	if retries > 0 {
		how = faulty
		means = append(means, countOf(retries, "task uses", "tasks use")+" a retry, or has none left and is archived")
	}
	if len(unserved) > 0 {
		how = faulty
		means = append(means, countOf(len(unserved), "task has", "tasks have")+" no guarded server of the queue, which could run it again")
		slices.Sort(unserved)
		do = "start a worker that serves " + strings.Join(slices.Compact(unserved), ", ") + "; " + do
	}
	found := fmt.Sprintf("%s is dead or cut off from Redis, and had %s: %s", x.workerOf(tasks), count(len(tasks), "task"), some(names))
	x.add(how, "orphans", found, strings.Join(means, "; "), x.ofWorkers(do))
}

// workerOf names the worker that has these tasks, if one of them still has its lock.
func (x *examination) workerOf(tasks []inspect.Orphan) string {
	for _, l := range x.locks {
		if l.Task != nil && l.Worker != nil && slices.ContainsFunc(tasks, func(o inspect.Orphan) bool { return o.Task == *l.Task }) {
			return l.Worker.Label()
		}
	}
	return "a worker"
}

// guarded reports whether a guarded server serves a queue.
func (x *examination) guarded(queue string) bool {
	return slices.ContainsFunc(x.servers, func(s inspect.Server) bool { return s.Guarded && slices.Contains(s.Queues, queue) })
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
