package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestKeysOfAWrongType: somebody has put another type at a key while tasks wait for a resource. That is reported. A task whose
// key it is, is set aside. All others of the resource run, once the key is gone if it is that of the lock itself. Other
// resources notice nothing.
func TestKeysOfAWrongType(t *testing.T) {
	t.Parallel()
	const waiting, lock = 5, "lock:a"
	const rated = "\na\t1 1000/1000000" // so the lock is held by a permit
	text, list := []any{"set", "another type"}, []any{"rpush", "another type"}
	for name, tt := range map[string]struct {
		key   string
		value []any
		rules string
		aside int  // which of those that wait is set aside, from 1 on; 0 for none
		holds bool // until the key is gone nobody can have the resource; the log names the lock
		early bool // the key is there before any task was taken
		dies  bool // and the server dies that has the resource, beside another one
	}{
		"lock":                            {key: lock, value: list, holds: true},
		"mark of a limit":                 {key: lock, value: list, rules: rated, holds: true},
		"wait queue":                      {key: "{" + lock + "}:queue", value: text},
		"lines":                           {key: taskredis.LinesKey(lock), value: text},
		"fence":                           {key: "{" + lock + "}:fence", value: list},
		"permits":                         {key: "{" + lock + "}:permits", value: text, rules: rated, holds: true},
		"permits, and a holder that dies": {key: "{" + lock + "}:permits", value: text, rules: rated, holds: true, dies: true},
		"starts":                          {key: "{" + lock + "}:starts", value: text, rules: rated, holds: true},
		"line":                            {key: taskredis.LineKey("q", lock), value: text},
		"ready set":                       {key: taskredis.ReadyKey("q"), value: text},
		"the first task that waits":       {key: taskredis.TaskKey("q", "task-000002"), value: text, aside: 1},
		"another task that waits":         {key: taskredis.TaskKey("q", "task-000004"), value: text, aside: 3},
		"a pending task":                  {key: taskredis.TaskKey("q", "task-000004"), value: text, aside: 3, early: true},
		"the task at work":                {key: taskredis.TaskKey("q", "task-000001"), value: text},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, l, log := newFleet(t), newLedger(t), &logbook{}
			may := make(chan struct{})
			work := func(task *Task) time.Duration {
				if task.ID == "task-000001" {
					<-may
				}
				return 20 * time.Millisecond
			}
			f.rules = taskredis.Rules{Limits: tt.rules}
			f.crowd("q", 1+waiting, "a")
			spoil, named, parked := func() {
				f.do("del", tt.key)
				f.do(append([]any{tt.value[0], tt.key}, tt.value[1:]...)...)
			}, tt.key, waiting
			if tt.early {
				spoil()
				parked--
			}
			if tt.holds {
				named = lock
			}
			start := func() *node {
				return f.node(l, work, ttl(2*time.Second), func(c *Config) { c.Logger = log.logger() })
			}
			n, first := start(), 1 // attempts at the first task
			f.eventually(f.parked("q", parked))
			f.eventually(l.begun(first))
			if !tt.early {
				spoil()
			}
			if tt.dies {
				n.kill()
				start()
				first++
			}
			close(may)

			others := names(10)
			f.crowd("q", 20, others...)
			f.within(15*time.Second, func() error {
				for _, r := range others {
					if have := len(l.of(r)); have < 20 {
						return fmt.Errorf("want 20 attempts on %s, have %d", r, have)
					}
				}
				return nil
			})
			f.eventually(func() error {
				if log.count(`what="`+named+": WRONGTYPE") == 0 && log.count("were put back") == 0 { // upkeep may have mended it first
					return fmt.Errorf("want %s in the log, have\n%v", named, log)
				}
				return nil
			})
			if tt.holds {
				if have := len(l.of("a")); have != 1 {
					t.Errorf("want nobody at work on a, have %d", have-1)
				}
				f.do("del", tt.key)
			}
			f.within(20*time.Second, func() error {
				if have := len(slices.DeleteFunc(slices.Clone(l.of("a")), func(v visit) bool { return v.ID != "task-000001" })); have != first {
					return fmt.Errorf("want %d attempts at the first task, have %d", first, have)
				}
				return nil
			})
			f.within(20*time.Second, func() error {
				for i := 1; i <= waiting; i++ {
					id := fmt.Sprintf("task-%06d", 1+i)
					ran := slices.ContainsFunc(l.of("a"), func(v visit) bool { return v.ID == id })
					if i != tt.aside && !ran {
						return errors.New("want this task to run: " + id)
					}
				}
				return nil
			})
		})
	}
}

// TestQueueOfAnotherType: a key of asynq's of one queue has another type. The other queue of the server goes on, and no attempt at its
// tasks is forgotten.
func TestQueueOfAnotherType(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"pending": taskredis.PendingKey("spoilt"), "active": taskredis.ActiveKey("spoilt"),
		"lease": taskredis.LeaseKey("spoilt"), "retry": taskredis.RetryKey("spoilt"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, l, log := newFleet(t), newLedger(t), &logbook{}
			f.crowd("spoilt", 5, "b", "c")
			f.do("del", key)
			f.do("set", key, "another type")
			resources := names(10)
			f.crowd("q", 20, resources...)
			work := func(*Task) time.Duration { return 5 * time.Millisecond }
			f.node(l, work, ttl(15*time.Second), serves("q", "spoilt"), func(c *Config) { c.Logger = log.logger() })
			done := func(queue string, n int) func() error {
				return func() error {
					if have := len(slices.DeleteFunc(l.all(), func(v visit) bool { return v.Queue != queue || v.ended.IsZero() })); have < n {
						return fmt.Errorf("want %d tasks of %s done, have %d", n, queue, have)
					}
					return nil
				}
			}
			f.within(8*time.Second, done("q", 200))
			f.eventually(func() error {
				if log.count("WRONGTYPE") == 0 {
					return fmt.Errorf("want the type in the log, have\n%v", log)
				}
				return nil
			})
			if have := len(slices.DeleteFunc(l.all(), func(v visit) bool { return v.Queue != "q" })); have != 200 {
				t.Errorf("want one attempt at each of 200 tasks, have %d", have)
			}
			if key == taskredis.PendingKey("spoilt") {
				return // the tasks are lost with it
			}
			f.do("del", key)
			f.within(20*time.Second, done("spoilt", 10))
		})
	}
}

// do sends Redis a command.
func (f *fleet) do(args ...any) {
	f.t.Helper()
	expect.OK(f.t, f.rdb.Do(f.t.Context(), args...).Err())
}
