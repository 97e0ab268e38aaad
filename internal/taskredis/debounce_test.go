package taskredis

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	debounceDelay = 100
	debounceMost  = 600
)

// debounced is a task that waits for 100 s, and for 600 s at most.
func debounced(queue, id string) *Enqueue {
	e := simple(queue, id)
	e.Message.Payload = []byte("payload of " + id)
	e.OwnID, e.Resource, e.Debounce = true, "customer:4", "4"
	e.Delay, e.MaxDelay = debounceDelay*time.Second, debounceMost*time.Second
	return e
}

func debounceKey(queue string) string { return DebounceKey(queue, "kind", "customer:4", "4") }

// debounce stores a debounced task, and wants it to replace the other one, "" for none.
func (t *bench) debounce(e *Enqueue, replaces string) {
	t.Helper()
	err := NewEnqueuer(t.rdb).Enqueue(t.Context(), e)
	expect.Need(t, err == nil, "%s: %v", e.Message.ID, err)
	expect.That(t, e.Replaced == replaces, "%s: want %q replaced, have %q", e.Message.ID, replaces, e.Replaced)
}

// now returns the time of Redis as the tests compare it, in whole seconds, rounded up.
func (t *bench) now() int64 {
	t.Helper()
	now := expect.Value(t.rdb.Time(t.Context()).Result())(t)
	return now.Add(time.Second - 1).Unix()
}

// later has so many seconds pass for the debounce and the scheduled tasks, so a test need not wait.
func (t *bench) later(seconds int64) {
	t.Helper()
	key := debounceKey(t.queue)
	for _, field := range []string{"due", "first"} {
		expect.OK(t, t.rdb.HIncrBy(t.Context(), key, field, -seconds).Err())
	}
	for _, id := range t.scheduled() {
		expect.OK(t, t.rdb.ZIncrBy(t.Context(), ScheduledKey(t.queue), -float64(seconds), id).Err())
	}
}

func (t *bench) scheduled() []string {
	t.Helper()
	return t.rdb.ZRange(t.Context(), ScheduledKey(t.queue), 0, -1).Val()
}

// wantOnly wants one task in the whole queue, with its own payload, and due so many seconds after a time that was between from
// and now.
func (t *bench) wantOnly(id string, from, seconds int64) {
	t.Helper()
	have := t.scheduled()
	expect.That(t, slices.Equal(have, []string{id}), "want %s alone scheduled, have %v", id, have)
	keys := t.rdb.Keys(t.Context(), TaskKey(t.queue, "*")).Val()
	expect.That(t, slices.Equal(keys, []string{TaskKey(t.queue, id)}), "want the task %s and no other, have %v", id, keys)
	m, err := DecodeMessage([]byte(t.rdb.HGet(t.Context(), TaskKey(t.queue, id), "msg").Val()))
	expect.That(t, err == nil && string(m.Payload) == "payload of "+id, "want the payload of %s, have %q, %v", id, m.Payload, err)
	t.wantDue(id, from, seconds)
}

func (t *bench) wantDue(id string, from, seconds int64) {
	t.Helper()
	due := int64(t.rdb.ZScore(t.Context(), ScheduledKey(t.queue), id).Val())
	expect.That(t, due >= from+seconds && due <= t.now()+seconds, "%s: want it due %d s after %d, have %d", id, seconds, from, due)
}

// A task takes the place of the one that waits. Each one pushes the delay back, but no further than the longest from the first.
func TestDebounce(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		from := t.now()
		t.debounce(debounced(t.queue, "0"), "")
		t.wantOnly("0", from, debounceDelay)
		for n := int64(1); n <= 6; n++ {
			t.later(90)
			t.debounce(debounced(t.queue, fmt.Sprint(n)), fmt.Sprint(n-1))
			t.wantOnly(fmt.Sprint(n), from, min(debounceDelay, debounceMost-90*n))
		}
		t.later(30)
		t.debounce(debounced(t.queue, "last"), "6")
		t.wantOnly("last", from, debounceMost-6*90-30)
		t.later(31)
		t.debounce(debounced(t.queue, "anew"), "")
		t.wantDue("anew", from, debounceDelay)
		have := t.scheduled()
		expect.That(t, len(have) == 2, "want the one that is due left as it is, have %v", have)
		// One that may wait for less than those before it does not wait at all.
		short := debounced(t.queue, "short")
		short.Delay, short.MaxDelay = time.Second, time.Second
		t.later(50)
		t.debounce(short, "anew")
		due := int64(t.rdb.ZScore(t.Context(), ScheduledKey(t.queue), "short").Val())
		expect.That(t, due <= t.now(), "want it due by now, have it due %d s later", due-t.now())
		ttl := t.rdb.TTL(t.Context(), debounceKey(t.queue)).Val()
		expect.That(t, ttl >= 40*time.Second && ttl <= time.Minute, "want the key kept for a minute, have %v", ttl)
	})
}

// Redis' clock was an hour ahead when the first one came: the longest delay holds all the same.
func TestDebounceAfterTheClockWasPutBack(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		t.debounce(debounced(t.queue, "0"), "")
		t.later(-3600)
		from := t.now()
		t.debounce(debounced(t.queue, "1"), "0")
		t.wantOnly("1", from, debounceDelay)
		t.later(debounceMost - 1) // both clocks go on
		expect.OK(t, t.rdb.HIncrBy(t.Context(), debounceKey(t.queue), "due", debounceMost).Err())
		t.debounce(debounced(t.queue, "2"), "1")
		due := int64(t.rdb.ZScore(t.Context(), ScheduledKey(t.queue), "2").Val())
		expect.That(t, due <= t.now()+1, "want it due as the longest delay of the first is over, have it due in %d s", due-t.now())
	})
}

// The task is stored as any other, and what remembers it goes away.
func TestDebounceIsStored(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		ctx := t.Context()
		key := debounceKey(t.queue)
		from := t.now()
		t.debounce(debounced(t.queue, "1"), "")
		t.debounce(debounced(t.queue, "2"), "1")
		fields := t.rdb.HGetAll(ctx, TaskKey(t.queue, "2")).Val()
		delete(fields, "msg")
		want := map[string]string{"state": "scheduled", "siding_resource": "customer:4", "siding_kind": "kind", "siding_debounce": key}
		expect.That(t, reflect.DeepEqual(fields, want), "want %v, have %v", want, fields)
		memory := t.rdb.HGetAll(ctx, key).Val()
		due, _ := strconv.ParseInt(memory["due"], 10, 64)
		first, _ := strconv.ParseInt(memory["first"], 10, 64)
		expect.That(t, memory["id"] == "2" && memory["replaced"] == "1" && first >= from && due >= first+debounceDelay && len(memory) == 4, "have %v", memory)
		ttl := t.rdb.TTL(ctx, key).Val()
		expect.That(t, ttl >= (debounceDelay+40)*time.Second && ttl <= (debounceDelay+60)*time.Second, "want it kept for a minute after the task is due, have %v", ttl)
		n := t.rdb.LLen(ctx, NotifyKey(t.queue)).Val()
		expect.That(t, n == 0, "want nobody woken, have %d elements", n)
		t.later(debounceDelay + 1)
		t.debounce(debounced(t.queue, "3"), "")
		if memory = t.rdb.HGetAll(ctx, key).Val(); memory["id"] != "3" || memory["replaced"] != "" {
			t.Errorf("want it to have replaced none, have %v", memory)
		}
	})
}

// A task that does not wait for its delay any more is not replaced, whatever has become of it. The next one begins anew.
func TestDebounceBeginsAnew(t *testing.T) {
	t.Parallel()
	state := func(state string) func(*bench) {
		return func(t *bench) { t.rdb.HSet(t.Context(), TaskKey(t.queue, "1"), "state", state) }
	}
	for name, happens := range map[string]func(*bench){
		"due":       func(t *bench) { t.later(debounceDelay + 1) },
		"pending":   state("pending"), // or an operator has it run
		"active":    state("active"),
		"retry":     state("retry"),
		"archived":  state("archived"),
		"completed": state("completed"),
		"deleted": func(t *bench) {
			t.rdb.Del(t.Context(), TaskKey(t.queue, "1"))
			t.rdb.ZRem(t.Context(), ScheduledKey(t.queue), "1")
		},
		"another one of its id":     func(t *bench) { t.rdb.HDel(t.Context(), TaskKey(t.queue, "1"), "siding_debounce") },
		"the key is gone":           func(t *bench) { t.rdb.Del(t.Context(), debounceKey(t.queue)) },
		"the key has lost its time": func(t *bench) { t.rdb.HDel(t.Context(), debounceKey(t.queue), "due") },
		"the key is written by hand": func(t *bench) {
			t.rdb.HSet(t.Context(), debounceKey(t.queue), "due", "soon", "first", "before")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onRedis(t, func(t *bench) {
				t.debounce(debounced(t.queue, "1"), "")
				t.later(5)
				happens(t)
				before := t.rdb.HGetAll(t.Context(), TaskKey(t.queue, "1")).Val()
				wasScheduled := t.scheduled()
				from := t.now()
				t.debounce(debounced(t.queue, "2"), "")
				t.wantDue("2", from, debounceDelay)
				if have := t.rdb.HGetAll(t.Context(), TaskKey(t.queue, "1")).Val(); !reflect.DeepEqual(have, before) {
					t.Errorf("want the first one as it was, %v, have %v", before, have)
				}
				if have := t.scheduled(); len(have) != len(wasScheduled)+1 {
					t.Errorf("want %v as before, and the new one, have %v", wasScheduled, have)
				}
				t.later(5)
				from = t.now()
				t.debounce(debounced(t.queue, "3"), "2")
				t.wantDue("3", from, debounceDelay)
				if first := t.rdb.HGet(t.Context(), debounceKey(t.queue), "first").Val(); first > fmt.Sprint(from-5) || first < fmt.Sprint(from-50) {
					t.Errorf("want the longest delay counted from the second one, 5 s before %d, have %s", from, first)
				}
			})
		})
	}
}

// Tasks of another queue, kind, resource or debounce are others.
func TestDebounceKeepsOthers(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		t.debounce(debounced(t.queue, "1"), "")
		for i, change := range []func(*Enqueue){
			func(e *Enqueue) { e.Message.Queue += ":2" },
			func(e *Enqueue) { e.Message.Type = "kind:2" },
			func(e *Enqueue) { e.Resource = "customer:5" },
			func(e *Enqueue) { e.Resource = "" },
			func(e *Enqueue) { e.Debounce = "5" },
			func(e *Enqueue) { e.Message.Type, e.Debounce = "kind:a", "b" },
			func(e *Enqueue) { e.Message.Type, e.Debounce = "kind", "a:b" },
			func(e *Enqueue) { e.Resource, e.Debounce = "r", "ab" },
			func(e *Enqueue) { e.Resource, e.Debounce = "ra", "b" },
		} {
			e := debounced(t.queue, fmt.Sprint("other ", i))
			change(e)
			t.debounce(e, "")
		}
		t.debounce(debounced(t.queue, "2"), "1")
	})
}

// A call whose answer was lost has stored one task, whatever has become of it until it comes again, and says again which one it
// has replaced.
func TestDebounceTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		between  func(t *bench, now string)
		replaced string
		want     []string // the tasks that are left
	}{
		"at once":  {nil, "before", []string{"now"}},
		"pending":  {func(t *bench, id string) { t.rdb.HSet(t.Context(), TaskKey(t.queue, id), "state", "pending") }, "before", []string{"now"}},
		"has run":  {func(t *bench, id string) { t.rdb.Del(t.Context(), TaskKey(t.queue, id)) }, "before", nil},
		"replaced": {func(t *bench, id string) { t.debounce(debounced(t.queue, "after"), id) }, "after", []string{"now"}},
		"kept, and another one has begun": {func(t *bench, id string) {
			t.rdb.HSet(t.Context(), TaskKey(t.queue, id), "state", "archived")
			t.debounce(debounced(t.queue, "after"), "")
		}, "", []string{"after", "now"}},
	} {
		for _, together := range []bool{false, true} {
			if together && tt.between != nil {
				continue // nothing comes between
			}
			t.Run(fmt.Sprint(name, ", together ", together), func(t *testing.T) {
				t.Parallel()
				onRedis(t, func(t *bench) {
					t.debounce(debounced(t.queue, "before"), "")
					sends, between := 0, (func())(nil)
					if tt.between != nil {
						between = func() {
							if sends++; sends == 1 { // a script that is not known has no answer
								tt.between(t, "now")
							}
						}
					}
					e, q := debounced(t.queue, "now"), t.sendsTwice(between)
					var err error
					if together {
						err = q.EnqueueAll(t.Context(), []*Enqueue{e})[0]
					} else {
						err = q.Enqueue(t.Context(), e)
					}
					expect.That(t, err == nil && e.Replaced == tt.replaced, "want %q replaced, have %q, %v", tt.replaced, e.Replaced, err)
					var have []string
					for _, key := range t.rdb.Keys(t.Context(), TaskKey(t.queue, "*")).Val() {
						have = append(have, strings.TrimPrefix(key, TaskKey(t.queue, "")))
					}
					slices.Sort(have)
					expect.That(t, slices.Equal(have, tt.want), "want the tasks %v, have %v", tt.want, have)
				})
			})
		}
	}
}

// However many come at once, one is left: the one that nobody has replaced.
func TestDebounceOfManyAtOnce(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		const producers, each = 8, 25
		var mu sync.Mutex
		left := make(map[string]bool)
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				q := NewEnqueuer(t.rdb)
				var tasks []*Enqueue
				for n := range each {
					tasks = append(tasks, debounced(t.queue, fmt.Sprint(p, "-", n)))
				}
				if p%2 == 0 {
					for _, err := range q.EnqueueAll(t.Context(), tasks) {
						expect.Is(t, "enqueue all", err, nil)
					}
				}
				for _, e := range tasks {
					if p%2 == 1 {
						expect.Is(t, "enqueue", q.Enqueue(t.Context(), e), nil)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, e := range tasks {
					if _, replaced := left[e.Message.ID]; !replaced {
						left[e.Message.ID] = true
					}
					if e.Replaced != "" {
						if there, known := left[e.Replaced]; known && !there {
							t.Errorf("%s was replaced twice", e.Replaced)
						}
						left[e.Replaced] = false
					}
				}
			})
		}
		wg.Wait()
		var have []string
		for id, there := range left {
			if there {
				have = append(have, id)
			}
		}
		expect.Need(t, len(have) == 1 && len(left) == producers*each, "want one of %d not replaced, have %v of %d", producers*each, have, len(left))
		expect.That(t, strings.HasSuffix(have[0], fmt.Sprint("-", each-1)), "want the last one of some producer, have %s", have[0])
		t.wantOnly(have[0], t.now()-50, debounceDelay)
	})
}

// What Redis refuses changes nothing: the task that waited still does.
func TestDebounceIsRefused(t *testing.T) {
	t.Parallel()
	type row struct {
		spoil, mend func(*bench)
		want        string
	}
	ofAnotherType := func(key func(queue string) string) row {
		return row{func(t *bench) {
			t.rdb.Rename(t.Context(), key(t.queue), key(t.queue)+"saved")
			t.rdb.Set(t.Context(), key(t.queue), "of another type", 0)
		}, func(t *bench) { t.rdb.Rename(t.Context(), key(t.queue)+"saved", key(t.queue)) }, "WRONGTYPE"}
	}
	for name, tt := range map[string]row{
		"the key has another type":              ofAnotherType(debounceKey),
		"the scheduled tasks have another type": ofAnotherType(ScheduledKey),
		"Redis is full": {
			func(t *bench) { t.rdb.ConfigSet(t.Context(), "maxmemory", "1") },
			func(t *bench) { t.rdb.ConfigSet(t.Context(), "maxmemory", "0") },
			"OOM",
		},
	} {
		t.Run(name, func(test *testing.T) {
			test.Parallel()
			t := newBench(test, redistest.Start(test).Client(test)) // of its own, as it gets full
			t.debounce(debounced(t.queue, "1"), "")
			q := NewEnqueuer(t.rdb)
			q.listed[t.queue] = time.Now() // by a client that lives
			tt.spoil(t)
			e := debounced(t.queue, "2")
			err := q.Enqueue(t.Context(), e)
			expect.That(t, err != nil && strings.Contains(err.Error(), tt.want) && e.Replaced == "", "want %s, have %v", tt.want, err)
			tt.mend(t)
			t.wantOnly("1", t.now()-50, debounceDelay)
			t.debounce(debounced(t.queue, "3"), "1")
		})
	}
}
