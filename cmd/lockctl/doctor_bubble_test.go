package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/election"
)

// A changing is an inspector whose lists change with time.
type changing struct {
	fake

	held func() inspect.List
	show func(resource string) inspect.Lock
}

func (c *changing) Held(context.Context) (inspect.List, error) { return c.held(), nil }

func (c *changing) Show(_ context.Context, resource string, _, _ int) (inspect.Lock, []inspect.Waiter, error) {
	return c.show(resource), nil, nil
}

func examine(i inspector) *examination {
	a, _, _ := fakeApp(nil, 0)
	return &examination{app: a, connection: &connection{inspector: i, settings: config.Default()}}
}

// A lock that nobody holds is stuck only if it still is when the sweeper should have seen it.
func TestStuckLock(t *testing.T) {
	t.Parallel()
	free := func(resource string, wait time.Duration, waiting, paused int) inspect.Lock {
		return inspect.Lock{Resource: resource, State: inspect.Free, Waiting: waiting, Paused: paused, OldestWait: inspect.Duration(wait)}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		first := []inspect.Lock{free("stuck", 3*time.Second, 1, 0), free("swept", 3*time.Second, 1, 0), free("young", time.Second, 1, 0), free("paused", time.Hour, 2, 2)}
		i := &changing{held: func() inspect.List {
			if time.Since(start) < 3*time.Second {
				return inspect.List{Locks: first}
			}
			return inspect.List{Locks: []inspect.Lock{free("stuck", 6*time.Second, 1, 0), free("young", 4*time.Second, 1, 0), first[3]}}
		}}
		x := examine(i)
		x.locks = first
		if err := x.contended(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(x.checks) != 1 || x.checks[0].Status != faulty || !strings.HasPrefix(x.checks[0].Found, "stuck: nobody holds the lock, and 1 task waits") {
			t.Errorf("want the lock that is stuck, have %+v", x.checks)
		}
		x = examine(i)
		x.locks = []inspect.Lock{free("young", time.Second, 1, 0)}
		begin := time.Now()
		if err := x.contended(t.Context()); err != nil || x.checks[0].Status != ok || time.Since(begin) != 0 {
			t.Errorf("want nothing found at once, have %+v, %v", x.checks, err)
		}
	})
}

// A server is missed only if none was elected for a while, and if there is something to do.
func TestElectedServer(t *testing.T) {
	t.Parallel()
	servers := []inspect.Server{
		{Worker: inspect.Worker{Host: "a", PID: 1}, Queues: []string{"high", "low"}, Guarded: true},
		{Worker: inspect.Worker{Host: "b", PID: 2}, Queues: []string{"high", "low"}, Guarded: true},
		{Worker: inspect.Worker{Host: "c", PID: 3}, Queues: []string{"other"}, Guarded: true},
		{Worker: inspect.Worker{Host: "c", PID: 3}, Queues: []string{"third"}, Guarded: true},
		{Worker: inspect.Worker{Host: "d", PID: 4}, Queues: []string{"plain"}},
	}
	lock := func(resource string) inspect.Lock {
		return inspect.Lock{Resource: resource, State: inspect.Held, Holder: "elected server on x (pid 9)"}
	}
	for name, c := range map[string]struct {
		after    time.Duration // when a server is elected for high and low
		active   int           // tasks of low
		together bool          // the process c stands for both of its queues
		took     time.Duration
		want     string
	}{
		"at once":        {0, 1, true, 0, "ok for high, low: x (pid 9)"},
		"soon":           {6 * time.Second, 1, true, 6 * time.Second, "ok for high, low: x (pid 9)"},
		"never":          {time.Hour, 1, true, 8 * time.Second, "fault none for high, low"},
		"nothing to do":  {time.Hour, 0, true, 0, "ok none for high, low, where no task runs or waits"},
		"separate roles": {0, 1, false, 0, "ok for high, low: x (pid 9)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				x := examine(&changing{show: func(resource string) inspect.Lock {
					switch resource {
					case election.Resource([]string{"low", "high"}, true):
						if time.Since(start) >= c.after {
							return lock(resource)
						}
					case election.Resource([]string{"other", "third"}, false):
						if c.together {
							return lock(resource)
						}
					}
					return inspect.Lock{Resource: resource, State: inspect.Free}
				}})
				x.servers = servers
				x.queues = []inspect.Queue{{Name: "low", Active: c.active}, {Name: "other"}}
				if err := x.elected(t.Context()); err != nil {
					t.Fatal(err)
				}
				var have []string
				for _, c := range x.checks {
					have = append(have, string(c.Status)+" "+c.Found)
				}
				want := []string{c.want, "ok for other: x (pid 9)", "ok for third: x (pid 9)"}
				if !c.together {
					want[1], want[2] = "ok none for other, where no task runs or waits", "ok none for third, where no task runs or waits"
				}
				if strings.Join(have, "\n") != strings.Join(want, "\n") {
					t.Errorf("want %q, have %q", want, have)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("want it after %v, have %v", c.took, took)
				}
			})
		})
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	task := inspect.Task{Queue: "default", ID: "77ab09", Kind: "order:audit"}
	for name, c := range map[string]struct {
		orphan inspect.Orphan
		want   string
	}{
		"crashed":       {inspect.Orphan{Task: task, Crashes: 2, Tolerated: 3}, "warning order:audit 77ab09 in default runs again after 2 worker crashes"},
		"orphaned":      {inspect.Orphan{Task: task, Orphaned: true, Crashes: 1, Tolerated: 3}, "warning order:audit 77ab09 in default has no worker"},
		"no server":     {inspect.Orphan{Task: inspect.Task{Queue: "low", ID: "77ab09"}, Orphaned: true, Tolerated: 3}, "fault 77ab09 in low has no worker"},
		"left to asynq": {inspect.Orphan{Task: task, Orphaned: true, Crashes: 3, Tolerated: 3, Left: true}, "fault order:audit 77ab09 in default has no worker, and is left to asynq"},
	} {
		x := examine(&fake{})
		x.servers = []inspect.Server{{Queues: []string{"default"}, Guarded: true}, {Queues: []string{"low"}}}
		x.orphans = []inspect.Orphan{c.orphan}
		if err := x.tasks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if have := x.checks[0]; len(x.checks) != 1 || string(have.Status)+" "+have.Found != c.want || !strings.Contains(have.Do, "`lockctl why 77ab09`") {
			t.Errorf("%s: want %q, have %+v", name, c.want, x.checks)
		}
	}
}
