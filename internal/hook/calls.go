package hook

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// op is what one of asynq's scripts does, by its name in asynq.scripts: doneUnique does what done does.
type op string

const (
	opNone        op = "" // not one of asynq's
	opDequeue     op = "dequeue"
	opDone        op = "done"
	opComplete    op = "markAsComplete"
	opRequeue     op = "requeue"
	opRetry       op = "retry"
	opArchive     op = "archive"
	opListExpired op = "listLeaseExpired"
)

// ends reports whether asynq ends an attempt by o.
func (o op) ends() bool {
	return o == opDone || o == opComplete || o == opRequeue || o == opRetry || o == opArchive
}

// A call is a script call on its way to Redis, taken apart.
type call struct {
	op     op
	sha    string
	source string // "" if the script is sent by its name
	keys   []any
	argv   []any
	queue  string
}

// parse takes cmd apart. The op of a call that we do not know is opNone.
func parse(cmd redis.Cmder) (c call) {
	args := cmd.Args() // [evalsha, sha, number of keys, keys..., argv...]
	if len(args) < 4 {
		return c
	}
	script, ok := args[1].(string)
	n, isInt := args[2].(int)
	if !ok || !isInt || n < 1 || len(args) < 3+n {
		return c
	}
	switch cmd.Name() {
	case "eval":
		c.source, c.sha = script, redis.NewScript(script).Hash()
	case "evalsha":
		c.sha = script
	default:
		return c
	}
	c.keys, c.argv = args[3:3+n], args[3+n:]
	op, key := known[c.sha], c.keys[0]
	if (op == opRetry || op == opArchive) && n > 1 {
		// The first key is the task's own. The id in it may hold anything, also what ends a
		// queue's name. The second key is that of the active tasks.
		key = c.keys[1]
	}
	text, _ := key.(string)
	if c.queue, ok = asynqredis.QueueOf(text); !ok {
		return c
	}
	c.op = op
	return c
}

// likeDequeue reports whether c has the keys of a dequeue, known or not.
func (c call) likeDequeue() bool {
	return c.queue != "" && slices.Equal(c.keys, []any{asynqredis.PendingKey(c.queue), asynqredis.PausedKey(c.queue), asynqredis.ActiveKey(c.queue), asynqredis.LeaseKey(c.queue)})
}

// unknown reports whether c runs a script on asynq's keys that neither the known asynq nor this
// project has.
func (c call) unknown() bool {
	if c.sha == "" {
		return false
	}
	key, _ := c.keys[0].(string)
	if _, ok := known[c.sha]; ok || !strings.HasPrefix(key, "asynq:{") {
		return false
	}
	return !asynqredis.IsOwn(c.sha)
}

// ended returns the key of the task whose attempt c ends, or "" if c ends none. The keys of an unknown
// script tell: the task's and that of the active tasks are among them. If that of the pending tasks is,
// too, asynq requeues the task.
func (c call) ended() string {
	if c.op.ends() {
		return asynqredis.TaskKey(c.queue, c.arg(0))
	}
	if !c.unknown() {
		return ""
	}
	for _, k := range c.keys {
		active, _ := k.(string)
		queue, ok := asynqredis.QueueOf(active)
		if !ok || active != asynqredis.ActiveKey(queue) || slices.Contains(c.keys, any(asynqredis.PendingKey(queue))) {
			continue
		}
		for _, k := range c.keys {
			task, _ := k.(string)
			if id, ok := strings.CutPrefix(task, asynqredis.TaskKeyPrefix(queue)); ok && id != "" { // alone it is a key, too
				return task
			}
		}
	}
	return ""
}

// pendingOf returns the queue whose pending tasks c has among its keys. A task's key may end like the
// key of pending tasks. But the prefix of such a queue begins no other key of c.
func (c call) pendingOf() (queue string, ok bool) {
	for _, k := range c.keys {
		key, _ := k.(string)
		if !strings.HasSuffix(key, "}:pending") {
			continue
		}
		queue, ok := asynqredis.QueueOf(key)
		foreign := func(k any) bool { key, _ := k.(string); return !strings.HasPrefix(key, asynqredis.Prefix(queue)) }
		if ok && !slices.ContainsFunc(c.keys, foreign) {
			return queue, true
		}
	}
	return "", false
}

// arg returns the i-th argument as text, "" if the argument is no text.
func (c call) arg(i int) string {
	if i >= len(c.argv) {
		return ""
	}
	switch v := c.argv[i].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// answer sets the result of cmd, which was never sent.
func answer(cmd redis.Cmder, v any, err error) error {
	c, ok := cmd.(*redis.Cmd)
	if err == nil && !ok {
		err = errors.New("hook: a script call of an unknown type")
	}
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	c.SetVal(v)
	return nil
}
