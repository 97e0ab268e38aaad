package hook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
)

func TestHookTouchesOnlyCallsItKnows(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	unknown := map[string][]any{
		"a plain command":   {"get", "asynq:{q}:pending"},
		"one word":          {"evalsha"},
		"a script, no keys": {"eval", "return 1", 0},
		"a script, short":   {"eval", "return 1", 4, "asynq:{q}:pending"},
		"a count as text":   {"evalsha", calls["dequeue"][1], "1", "asynq:{q}:pending"},
		"a name no text":    {"evalsha", 7, 1, "asynq:{q}:pending"},
		"a verb no text":    {7, calls["dequeue"][1], 1, "asynq:{q}:pending"},
		"a short verb":      {"ev", calls["dequeue"][1], 1, "asynq:{q}:pending"},
		"a key no text":     {"evalsha", calls["done"][1], 1, 7},
		"a minus count":     {"evalsha", calls["done"][1], -1, "asynq:{q}:active"},
	}
	for name, call := range calls {
		changed := slices.Clone(call)
		changed[0] = "evalsha_ro"
		unknown[name+", read only"] = changed
		changed = slices.Clone(call)
		for i := range 4 {
			changed[3+i] = strings.Replace(fmt.Sprint(call[3+i]), "asynq:", "other:", 1)
		}
		unknown[name+" on keys that are not asynq's"] = changed
	}
	for name, call := range unknown {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := quiet()
			a := asDequeued(t, h, calls)
			a.Park(asynqredis.Park{At: time.Now().Add(time.Hour)})
			cmd, sent := process(t, h, replies(t, "as it is"), call)
			if diff := cmp.Diff([][]any{call}, sent); diff != "" {
				t.Errorf("(-want +sent):\n%s", diff)
			}
			if cmd.Val() != "as it is" || h.Attempt(a.Queue, a.ID) != a {
				t.Errorf("want the reply as it is and the attempt kept, have %v", cmd.Val())
			}
		})
	}
}

// The scripts that the hook acts upon are those that [TestAsynqCalls] sees
// asynq send, under the same digests.
func TestHookKnowsTheCallsOfTheFacts(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	acts := map[string]bool{
		"dequeue": true, "done": true, "done-unique": true, "complete": true, "complete-unique": true,
		"requeue": true, "retry": true, "archive": true,
		"enqueue": true, "enqueue-unique": true, "forward": true, // they notify
		"schedule": false, "schedule-unique": false, "find-expired": false,
	}
	seen := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(asynqCalls)) {
		words, _, _ := strings.Cut(line, "|")
		fields := strings.Fields(words)
		name, sha := fields[0], fields[1]
		want, ok := acts[name]
		if !ok {
			t.Errorf("%s: want it known to this test", name)
		}
		seen[name] = true
		h := quiet()
		a := asDequeued(t, h, calls)
		call := []any{"evalsha", sha, len(fields) - 2}
		for _, key := range fields[2:] {
			call = append(call, "asynq:{"+a.Queue+"}:"+key)
		}
		call = append(call, a.ID, "two", "three")
		w := &wire{answer: func(redis.Cmder) error { return nil }}
		err := h.ProcessHook(w.process)(t.Context(), redis.NewCmd(t.Context(), call...))
		sent := w.sent
		if len(sent) == 0 && !missing(err) {
			t.Errorf("%s: want its text asked for, have %v", name, err)
		}
		if acted := len(sent) == 0 || !slices.Equal(sent[0], call); acted != want {
			t.Errorf("%s: want the hook to act on it: %v, have %v sent", name, want, sent)
		}
	}
	if len(seen) != len(acts) {
		t.Errorf("want all of %v, have %v", acts, seen)
	}
}

// After an unknown script the hook changes no call any more, except those that end an attempt which
// waits to be parked.
func TestHookOfAnotherAsynq(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	for name, call := range calls {
		for _, parked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", parked ", parked), func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				h := hook.NewHook(slog.New(slog.NewTextHandler(&log, nil)), func() {})
				a := asDequeued(t, h, calls)
				if parked {
					a.Park(asynqredis.Park{At: time.Now().Add(time.Hour)})
				}
				changed := slices.Clone(call)
				changed[1] = "0" + fmt.Sprint(call[1])[1:]
				answer := any("as it is")
				parks := parked && name != "dequeue" && name != "requeue"
				if parks {
					answer = []any{int64(1), int64(0)}
				}
				cmd, sent := process(t, h, replies(t, answer), changed)
				if want := [][]any{changed}; parks == cmp.Equal(want, sent) || parks == (cmd.Val() == "as it is") {
					t.Errorf("want it parked: %t, have %v for %v", parks, cmd.Val(), sent)
				}
				if _, sent := process(t, h, replies(t, redis.Nil), calls["dequeue"]); !cmp.Equal([][]any{calls["dequeue"]}, sent) {
					t.Errorf("want the dequeue as it is, have %v", sent)
				}
				if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level=ERROR") || !h.Mismatched() {
					t.Errorf("want one line, and a mismatch, have %t:\n%s", h.Mismatched(), &log)
				}
			})
		}
	}
}

func TestHookSendsItsOwnDequeue(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	sha := redis.NewScript(asynqredis.AttemptLua + "local lock_or_park\n" + source(t, "dequeue.lua")).Hash()
	names := map[string]bool{}
	for range 2 { // as in two processes
		h := quiet()
		for range 40 {
			_, sent := process(t, h, replies(t, redis.Nil), calls["dequeue"])
			theirs := calls["dequeue"]
			want := slices.Concat([]any{"evalsha", sha, 7}, theirs[3:7],
				[]any{"siding:{" + queueOf(calls) + "}:notify", "asynq:{" + queueOf(calls) + "}:retry", "siding:{" + queueOf(calls) + "}:contended"}, theirs[7:])
			last := len(want)
			if len(sent) != 1 || len(sent[0]) != last+1 || !slices.Equal(sent[0][:last], want) {
				t.Fatalf("want %v and a name sent, have %v", want, sent)
			}
			names[fmt.Sprint(sent[0][last])] = true
		}
	}
	if len(names) != 80 {
		t.Errorf("want 80 attempts with a name each, have %d names", len(names))
	}
}

func TestHookSendsTheTextOfAScriptThatRedisDoesNotKnow(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	unknown := notLoadedError{}
	park := source(t, "../asynqredis/notify.lua", "../asynqredis/encoded.lua", "../asynqredis/parking.lua", "../asynqredis/park.lua")
	for name, text := range map[string]string{"dequeue": asynqredis.AttemptLua + "local lock_or_park\n" + source(t, "dequeue.lua"), "retry": park, "archive": park} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, reply := quiet(), []any{"OK", int64(0)}
			if name == "dequeue" {
				reply = dequeued("OK")
			} else {
				asDequeued(t, h, calls).Park(asynqredis.Park{At: time.Now()})
			}
			cmd, sent := process(t, h, replies(t, unknown, reply), calls[name])
			if cmd.Val() != "OK" || cmd.Err() != nil || len(sent) != 2 {
				t.Fatalf("want two calls and the second's reply, have %v, %v", sent, cmd)
			}
			want := slices.Concat([]any{"eval", text}, sent[0][2:])
			if diff := cmp.Diff(want, sent[1]); diff != "" {
				t.Errorf("(-want +sent):\n%s", diff)
			}
		})
	}
}

type notLoadedError struct{}

func (notLoadedError) RedisError()   {}
func (notLoadedError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }

// asynq itself must see what went wrong, and may try again.
func TestHookPassesErrorsOn(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	for _, broken := range []error{io.EOF, context.DeadlineExceeded, redis.ErrClosed, redis.TxFailedErr} {
		for name, call := range calls {
			for _, mark := range []string{"", "parked"} {
				t.Run(fmt.Sprintf("%v, %s, %s", broken, name, mark), func(t *testing.T) {
					t.Parallel()
					h := quiet()
					var a *hook.Attempt
					told := 0
					if name != "dequeue" {
						a = asDequeued(t, h, calls)
						if mark == "parked" {
							a.Park(asynqredis.Park{At: time.Now(), Done: func(n int) { told = n }})
						}
					}
					cmd, sent := process(t, h, replies(t, broken), call)
					if cmd.Err() != broken || len(sent) != 1 { //nolint:errorlint // the very one
						t.Errorf("want one call and its error %v, have %d, %v", broken, len(sent), cmd.Err())
					}
					if have := h.Attempt(queueOf(calls), "task-1"); have != a {
						t.Errorf("want the attempt known as before, %p, have %p", a, have)
					}
					if told != 0 {
						t.Error("want Done told of nothing")
					}
				})
			}
		}
	}
}

// A call that failed may be repeated, and then counts.
func TestHookParksOnTheSecondTry(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	h := quiet()
	a := asDequeued(t, h, calls)
	told := 0
	a.Park(asynqredis.Park{At: time.Now(), Ticket: 7, Done: func(n int) { told = n }})
	process(t, h, replies(t, io.EOF), calls["retry"])
	cmd, _ := process(t, h, replies(t, []any{int64(3), int64(0)}), calls["retry"])
	if cmd.Err() != nil || cmd.Val() != "OK" || told != 3 || h.Attempt(a.Queue, a.ID) != nil {
		t.Errorf("want OK and Done told 3, have %v and %d", cmd, told)
	}
	// The hook does not change a second call.
	_, sent := process(t, h, replies(t, "OK"), calls["retry"])
	if diff := cmp.Diff([][]any{calls["retry"]}, sent); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
}

// A task that a shutdown requeues is on its way already.
func TestHookDoesNotParkWhatIsRequeued(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	h := quiet()
	dequeue := redis.NewCmd(t.Context(), calls["dequeue"]...)
	w := &wire{answer: replies(t, dequeued("\x1a\x06task-1"))}
	if err := h.ProcessHook(w.process)(t.Context(), dequeue); err != nil {
		t.Fatal(err)
	}
	attempt := w.sent[0][len(w.sent[0])-1]
	h.Attempt(queueOf(calls), "task-1").Park(asynqredis.Park{At: time.Now()})
	_, sent := process(t, h, replies(t, "OK"), calls["requeue"])
	if diff := cmp.Diff([][]any{conditional(t, calls["requeue"], attempt, taskKeys["requeue"])}, sent); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
}

// taskKeys says which key of an acknowledgement is the task's.
var taskKeys = map[string]int{
	"done": 3, "done unique": 3, "completed": 4, "completed unique": 4, "requeue": 4, "retry": 1, "archive": 1,
}

func TestHookRefusesRepliesItCannotRead(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	h := quiet()
	cmd, _ := process(t, h, replies(t, int64(7)), calls["dequeue"])
	if cmd.Err() == nil || !strings.Contains(cmd.Err().Error(), "int64") {
		t.Errorf("want an error that names the reply's type, have %v", cmd)
	}
	for _, reply := range []string{"", "\x1a", "no message", "\x12\x01x"} { // none with an id
		cmd, _ := process(t, h, replies(t, dequeued(reply)), calls["dequeue"])
		if cmd.Err() != nil || cmd.Val() != reply {
			t.Errorf("want %q passed on, as asynq reads it itself, have %v", reply, cmd)
		}
		if h.Attempt(queueOf(calls), "") != nil {
			t.Error("want no attempt without an id")
		}
	}
	asDequeued(t, h, calls).Park(asynqredis.Park{At: time.Now()})
	if cmd, _ := process(t, h, replies(t, "what?"), calls["retry"]); cmd.Err() != nil || cmd.Val() != "OK" {
		t.Errorf("want OK, have %v", cmd)
	}
	other := redis.NewStatusCmd(t.Context(), calls["dequeue"]...)
	w := &wire{answer: replies(t, redis.Nil, dequeued("\x1a\x06task-1"))}
	if err := h.ProcessHook(w.process)(t.Context(), other); !errors.Is(err, redis.Nil) {
		t.Errorf("want %v, have %v", redis.Nil, err)
	}
	if err := h.ProcessHook(w.process)(t.Context(), other); err == nil || !errors.Is(other.Err(), err) {
		t.Errorf("want an error for a command that cannot hold the reply, have %v", err)
	}
}

// Attempts come and go on many connections at once.
func TestHookServesManyConnections(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	h := quiet()
	queue := queueOf(calls)
	var all sync.WaitGroup
	for i := range 8 {
		id := fmt.Sprintf("task-%d", i/2) // two goroutines to a task
		all.Go(func() {
			send := func(name string) {
				call := slices.Clone(calls[name])
				for i, arg := range call {
					if arg == "task-1" {
						call[i] = id
					}
				}
				w := &wire{answer: func(cmd redis.Cmder) error {
					if c, ok := cmd.(*redis.Cmd); ok {
						c.SetVal(dequeued("\x1a\x06" + id))
					}
					return nil
				}}
				if _, err := deliver(t, h, w, call); err != nil {
					t.Error(err)
				}
			}
			for _, name := range slices.Repeat([]string{"done", "retry", "archive", "requeue", "completed"}, 20) {
				send("dequeue")
				if a := h.Attempt(queue, id); a != nil {
					handlerReturns := a.Running(t.Context())
					a.Park(asynqredis.Park{At: time.Now(), Done: func(int) {}})
					defer handlerReturns()
				}
				send(name)
			}
		})
	}
	all.Wait()
}

func TestHookLeavesDialsAndPipelinesAlone(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	h := quiet()
	rdb.AddHook(h)
	pipe := rdb.Pipeline()
	set, get := pipe.Set(t.Context(), "k", "v", 0), pipe.Get(t.Context(), "k")
	dequeue := pipe.Do(t.Context(), calls["dequeue"]...)
	if _, err := pipe.Exec(t.Context()); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("want the dequeue sent as it is, which this Redis does not know, have %v", err)
	}
	if set.Val() != "OK" || get.Val() != "v" || !missing(dequeue.Err()) {
		t.Errorf("want the replies of Redis, have %v, %v, %v", set, get, dequeue)
	}
}
