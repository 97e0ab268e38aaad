package hook

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// The hook takes apart any command without a panic. A call that the hook takes for asynq's is one
// by name, script and keys.
func FuzzParse(f *testing.F) {
	const dequeue, retry = "a8153319360adc71cdc370107f8ab9786f204765", "65fa409c88198a681c53e0892d8276eca0145694"
	f.Add("evalsha", dequeue, 4, "asynq:{q}:pending\nasynq:{q}:paused\nasynq:{q}:active\nasynq:{q}:lease\n1\nasynq:{q}:t:")
	f.Add("evalsha", retry, 2, "asynq:{q}:t:}:x\nasynq:{q}:active\nid\nmsg")
	f.Add("EVALSHA", retry, 1, "asynq:{q}:t:id\nid")
	f.Add("eval", "return 1", -1, "a\nb\nc")
	f.Add("eva", dequeue, 0, "")
	f.Add("eval", "0", 4, ":pending\n:paused\n:active\n:lease")
	f.Fuzz(func(t *testing.T, name, script string, keys int, rest string) {
		args := []any{name, script, keys}
		for arg := range strings.SplitSeq(rest, "\n") {
			args = append(args, arg)
		}
		c := parse(redis.NewCmd(t.Context(), args...))
		c.arg(0)
		if task := c.ended(); !strings.Contains(rest, task) && task != asynqredis.TaskKey(c.queue, c.arg(0)) {
			t.Errorf("want a task of the keys or the first argument, have %q in %q", task, args)
		}
		if c.op == opNone && !c.likeDequeue() {
			return
		}
		if !strings.EqualFold(name, "eval") && !strings.EqualFold(name, "evalsha") {
			t.Errorf("want no call known that is no script's, have %q", args)
		}
		if len(c.keys) != keys || len(c.keys)+len(c.argv) != len(args)-3 {
			t.Errorf("want %d keys and the rest as arguments, have %d and %d of %d", keys, len(c.keys), len(c.argv), len(args)-3)
		}
		if !strings.Contains(rest, "asynq:{"+c.queue+"}:") {
			t.Errorf("want a queue of the keys, have %q in %q", c.queue, args)
		}
	})
}
