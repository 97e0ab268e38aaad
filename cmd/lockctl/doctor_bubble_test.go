package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

func examine(i inspector) *examination {
	a, _, _ := fakeApp(nil)
	return &examination{app: a, connection: &connection{inspector: i, settings: config.Default()}}
}

// A resource that is free and not served is a finding, unless its waiters are in paused queues. So is one that is paused, also
// while its holder is still at work.
func TestUnserved(t *testing.T) {
	t.Parallel()
	free := func(resource string, unserved time.Duration, waiting, paused int) inspect.Lock {
		return inspect.Lock{Resource: resource, State: inspect.Free, Waiting: waiting, Paused: paused, Unserved: inspect.Duration(unserved), Ready: now.Add(-unserved)}
	}
	limited := func(l inspect.Lock, holders int) inspect.Lock {
		l.Limit = &inspect.Limit{Pattern: "stopped:*", Holders: holders, By: "ann", Reason: "stock count"}
		return l
	}
	x := examine(&fake{})
	x.locks = []inspect.Lock{
		free("late", 12*time.Second, 1, 0), free("served", 0, 1, 0), free("paused", time.Hour, 2, 2), limited(free("stopped:1", time.Hour, 2, 0), 0),
		limited(inspect.Lock{Resource: "stopped:2", State: inspect.Held, Waiting: 3}, 0), limited(free("slow", 0, 1, 0), 2),
		limited(inspect.Lock{Resource: "stopped:3", State: inspect.Held}, 0),
	}
	expect.OK(t, x.contended(t.Context()))
	var have []string
	for _, c := range x.checks {
		found, _, _ := strings.Cut(c.Found, ", ready")
		have = append(have, fmt.Sprintf("%s %s; %s", c.Status, found, c.Means))
	}
	want := []string{
		"warning late: not served for 12 s; nobody holds the lock, and no server of the waiters' queues has had a free slot for them",
		"warning stopped:1: ann has paused stopped:*: stock count; 2 tasks wait until it is resumed",
		"warning stopped:2: ann has paused stopped:*: stock count; 3 tasks wait until it is resumed",
	}
	expect.That(t, slices.Equal(have, want), "want %q, have %q", want, have)
	x = examine(&fake{})
	x.locks = []inspect.Lock{free("served", 0, 1, 0)}
	if err := x.contended(t.Context()); err != nil || x.checks[0].Status != ok {
		t.Errorf("want nothing found, have %+v, %v", x.checks, err)
	}
}

// What is not read, as there is too much of it, is no proof that all is well.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	x := examine(&fake{leftOut: 3})
	x.leftOut = 2
	expect.OK(t, errors.Join(x.contended(t.Context()), x.held(t.Context())))
	var have []string
	for _, c := range x.checks {
		have = append(have, fmt.Sprint(c.Status, " ", c.Check, ": ", c.Found))
	}
	want := []string{
		"warning locks: 2 contended locks are not looked at, as there are too many",
		"warning lines: 3 more lines are held, and not looked at, as there are too many",
	}
	expect.That(t, slices.Equal(have, want), "want %q, have %q", want, have)
}

// A server is missed only if none has come after a while.
func TestUpkeep(t *testing.T) {
	t.Parallel()
	servers := []inspect.Server{
		{Queues: []string{"high", "low"}, Guarded: true}, {Queues: []string{"high", "low"}, Guarded: true}, {Queues: []string{"other"}, Guarded: true}, {Queues: []string{"plain"}},
	}
	for after, want := range map[time.Duration]string{
		0: "ok a server looks after 2 sets of queues", 3 * time.Second: "ok a server looks after 2 sets of queues", time.Hour: "fault no server looks after high, low",
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			x := examine(&fake{servers: servers})
			x.attended = func(_ context.Context, queues []string) (bool, error) {
				return len(queues) == 1 || time.Since(start) >= after, nil
			}
			expect.OK(t, x.elected(t.Context()))
			if have := string(x.checks[0].Status) + " " + x.checks[0].Found; len(x.checks) != 1 || have != want {
				t.Errorf("after %v: want %q, have %+v", after, want, x.checks)
			}
			if took := time.Since(start); (took > 0) != (after > 0) {
				t.Errorf("want a second look only if need be, have it take %v", took)
			}
		})
	}
}

// The tasks whose workers died are one finding, however many they are.
func TestOrphans(t *testing.T) {
	t.Parallel()
	orphan := func(id string, retry bool) inspect.Orphan {
		return inspect.Orphan{Task: inspect.Task{Queue: "default", ID: id, Kind: "order:audit"}, Orphaned: true, Tolerated: 3, UsesRetry: retry}
	}
	crashed := inspect.Orphan{Task: inspect.Task{Queue: "default", ID: "77ab09", Kind: "order:audit"}, Crashes: 2, Tolerated: 3}
	var many []inspect.Orphan
	for n := range 100 {
		many = append(many, orphan(fmt.Sprint("a-", n), n > 90))
	}
	for want, orphans := range map[string][]inspect.Orphan{
		"ok every task that runs has its worker; ":                                                                                                                        nil,
		"warning order:audit 77ab09 in default runs again after 2 worker crashes; its worker died":                                                                        {crashed},
		"warning 1 task whose workers have gone: order:audit a-1 in default; their workers are dead or cut off":                                                           {orphan("a-1", false)},
		"fault 100 tasks whose workers have gone: order:audit a-0 in default, order:audit a-1 in default, order:audit a-2 in default and 97 more; their workers are dead": many,
	} {
		x := examine(&fake{})
		x.orphans = orphans
		expect.OK(t, x.tasks(t.Context()))
		have := x.checks[0]
		expect.That(t, len(x.checks) == 1 && strings.HasPrefix(string(have.Status)+" "+have.Found+"; "+have.Means, want) && strings.Contains(have.Do, "`lockctl why ") == (orphans != nil) &&
			strings.Contains(have.Means, "9 tasks use a retry") == (len(orphans) == 100), "want %q, have %+v", want, x.checks)
	}
}
