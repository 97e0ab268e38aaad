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
	name, ok := args[0].(string)
	if !ok || len(name) < 4 || !strings.EqualFold(name[:4], "eval") {
		return c
	}
	script, ok := args[1].(string)
	n, isInt := args[2].(int)
	if !ok || !isInt || n < 1 || len(args) < 3+n {
		return c
	}
	if strings.EqualFold(name, "eval") {
		c.source, script = script, scriptName(script)
	} else if !strings.EqualFold(name, "evalsha") {
		return c
	}
	c.sha = script
	c.keys, c.argv = args[3:3+n], args[3+n:]
	op, key := known[script], c.keys[0]
	if (op == opRetry || op == opArchive) && n > 1 {
		// The first key is the task's own. The id in it may hold anything, also what ends a
		// queue's name. The second key is that of the active tasks.
		key = c.keys[1]
	}
	name, _ = key.(string)
	if c.queue, ok = asynqredis.QueueOf(name); !ok {
		return c
	}
	c.op = op
	return c
}

// likeDequeue reports whether c has the keys of a dequeue, known or not.
func (c call) likeDequeue() bool {
	return c.queue != "" && slices.Equal(c.keys, []any{asynqredis.PendingKey(c.queue), asynqredis.PausedKey(c.queue), asynqredis.ActiveKey(c.queue), asynqredis.LeaseKey(c.queue)})
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

// scriptName returns the SHA1 by which Redis knows a script.
func scriptName(source string) string { return redis.NewScript(source).Hash() }

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
