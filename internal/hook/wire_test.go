package hook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
)

// callsOfAsynq returns the calls that asynq sends for a task, as it sends them.
func callsOfAsynq(t *testing.T) map[string][]any {
	t.Helper()
	calls := map[string][]any{}
	f := newFleet(t, miniredis.RunT(t).Addr())
	w := f.plain(t)
	for name, c := range map[string]struct {
		opts []asynq.Option
		err  error
	}{
		"done":             {},
		"done unique":      {opts: []asynq.Option{asynq.Unique(time.Hour)}},
		"completed":        {opts: []asynq.Option{asynq.Retention(time.Hour)}},
		"completed unique": {opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)}},
		"retry":            {err: errOwn},
		"archive":          {err: asynq.SkipRetry},
	} {
		f.enqueue(t, append(c.opts, asynq.TaskID("task-1"))...)
		send(t, w.gate.dequeue, struct{}{}, "a dequeue")
		calls["dequeue"] = receive(t, w.gate.dequeued, "the dequeued task").call
		send(t, receive(t, w.handlers, "the handler").result, c.err, "its end")
		calls[name] = receive(t, w.gate.acks, "the acknowledgement").call
		if err := f.inspector.DeleteTask(f.queue, "task-1"); err != nil && !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Fatal(err)
		}
	}
	w.take(t, f.enqueue(t, asynq.TaskID("task-1")))
	w.stop()
	calls["requeue"] = receive(t, w.gate.acks, "the requeue").call
	for name, call := range calls {
		if call[0] == "eval" { // the first time; later it goes by its name
			text := fmt.Sprint(call[1])
			sha := redis.NewScript(text).Hash()
			texts.Store(sha, text)
			calls[name] = slices.Concat([]any{"evalsha", sha}, call[2:])
		}
	}
	return calls
}

// texts are those of asynq's scripts, by their SHA1.
var texts sync.Map

// A wire stands for the connection under a hook.
type wire struct {
	mu     sync.Mutex
	sent   [][]any
	answer func(cmd redis.Cmder) error
}

func (w *wire) process(_ context.Context, cmd redis.Cmder) error {
	w.mu.Lock()
	w.sent = append(w.sent, slices.Clone(cmd.Args()))
	w.mu.Unlock()
	return w.answer(cmd)
}

// replies answers calls with these values and errors in turn.
func replies(t *testing.T, answers ...any) func(redis.Cmder) error {
	t.Helper()
	return func(cmd redis.Cmder) error {
		if len(answers) == 0 {
			t.Errorf("want no call, have %v", cmd.Args())
			return io.ErrUnexpectedEOF
		}
		answer := answers[0]
		answers = answers[1:]
		if err, ok := answer.(error); ok {
			cmd.SetErr(err)
			return err
		}
		switch cmd := cmd.(type) {
		case *redis.Cmd:
			cmd.SetVal(answer)
		case *redis.SliceCmd:
			values, ok := answer.([]any)
			if !ok {
				t.Errorf("want no call of the kind of %v", cmd.Args())
			}
			cmd.SetVal(values)
		}
		return nil
	}
}

func quiet() *hook.Hook { return hook.NewHook(slog.New(slog.DiscardHandler), func() {}) }

// process sends a call through the hook and returns the command, and what reached
// the wire.
func process(t *testing.T, h *hook.Hook, answer func(redis.Cmder) error, call []any) (cmd *redis.Cmd, sent [][]any) {
	t.Helper()
	w := &wire{answer: answer}
	cmd, err := deliver(t, h, w, call)
	if err != cmd.Err() { //nolint:errorlint // the very one
		t.Errorf("want the command's own error, %v, have %v", cmd.Err(), err)
	}
	return cmd, w.sent
}

// deliver sends a call through the hook. If the hook says that the script's name is not known,
// deliver sends the text, as asynq's client does.
func deliver(t *testing.T, h *hook.Hook, w *wire, call []any) (*redis.Cmd, error) {
	t.Helper()
	cmd := redis.NewCmd(t.Context(), call...)
	err := h.ProcessHook(w.process)(t.Context(), cmd)
	w.mu.Lock()
	unacknowledged := len(w.sent) == 0
	w.mu.Unlock()
	if missing(err) && unacknowledged {
		text, ok := texts.Load(call[1])
		if !ok {
			t.Fatalf("want the text of %v known", call[1])
		}
		cmd = redis.NewCmd(t.Context(), slices.Concat([]any{"eval", text}, call[2:])...)
		err = h.ProcessHook(w.process)(t.Context(), cmd)
	}
	return cmd, err
}

// source returns the text of scripts of this package, one after the other.
func source(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// conditional is an acknowledgement of asynq as the hook sends it, with a condition. For that it
// names the attempt and the number of the task's key. A requeue also notifies.
func conditional(t *testing.T, call []any, name any, taskKey int) []any {
	t.Helper()
	text, ok := texts.Load(call[1])
	if !ok {
		t.Fatalf("want the text of %v known", call[1])
	}
	changed := source(t, "acknowledge.lua") + fmt.Sprint(text)
	keys, argv := keysOf(t, call)
	if strings.Contains(changed, "RPUSH") { // a requeue, of an attempt without a ticket
		argv = append(slices.Clip(argv), "")
		changed = source(t, "acknowledge.lua", "keep_ticket.lua") + fmt.Sprint(text)
		changed = source(t, "../asynqredis/notify.lua") + "local function asynq()\n" + changed + "\nend\n" + source(t, "notifying.lua")
		queue := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(keys[0]), "asynq:{"), "}:active")
		keys = append(slices.Clip(keys), "asynq:{"+queue+"}:pending", "siding:{"+queue+"}:notify")
	}
	return slices.Concat([]any{"evalsha", redis.NewScript(changed).Hash(), len(keys)}, keys, argv, []any{name, taskKey})
}

func keysOf(t *testing.T, call []any) (keys, argv []any) {
	t.Helper()
	n, ok := call[2].(int)
	if !ok {
		t.Fatalf("want a number of keys, have %v", call)
	}
	return call[3 : 3+n], call[3+n:]
}

// dequeued is the answer to a dequeue that leaves another task.
func dequeued(msg string) []any { return []any{msg, int64(1), []any{}} }

// asDequeued makes h know the attempt of the calls' task.
func asDequeued(t *testing.T, h *hook.Hook, calls map[string][]any) *hook.Attempt {
	t.Helper()
	process(t, h, replies(t, dequeued("\x1a\x06task-1")), calls["dequeue"])
	a := h.Attempt(queueOf(calls), "task-1")
	if a == nil {
		t.Fatal("want an attempt, have none")
	}
	return a
}

func queueOf(calls map[string][]any) string {
	key, _ := calls["dequeue"][3].(string)
	return key[strings.Index(key, "{")+1 : strings.Index(key, "}")]
}
