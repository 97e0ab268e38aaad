package asynqredis

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script, no secret
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

// op is one of asynq's script calls.
type op int

const (
	opNone op = iota
	opDequeue
	opDone
	opComplete
	opRequeue
	opRetry
	opArchive
)

// opOf knows asynq's scripts by their SHA1, which are those of asynq 0.26.
func opOf(sha string) op {
	switch sha {
	case "a8153319360adc71cdc370107f8ab9786f204765":
		return opDequeue
	case "1241eaa1c73409baaf1fea0c08d203a4911bda15", "a2631c71357a54b4c3e7450b1757e7f3f49d6c81":
		return opDone // plain, and of a unique task
	case "117dca952700588e559c7ace20b925096d587974", "ce6833ccce362a8c0ee53beee413341daf52e39c":
		return opComplete
	case "f34cbfd11d1fc8019af55b50c447fc68eb8b29e5":
		return opRequeue
	case "65fa409c88198a681c53e0892d8276eca0145694":
		return opRetry
	case "9c3b1eb9947ce2ee5304ac013a0a365ec364fd2d":
		return opArchive
	}
	return opNone
}

// taskKey returns which of the keys of an acknowledgement, the first being 1, is
// that of the task.
func (o op) taskKey() int {
	switch o {
	case opDone:
		return 3
	case opComplete, opRequeue:
		return 4
	default: // retry, archive
		return 1
	}
}

// A call is a script call on its way to Redis, taken apart.
type call struct {
	op     op
	sha    string
	source string // "" where the script is sent by its name
	keys   []any
	argv   []any
	queue  string
}

// parse takes cmd apart; its op is opNone when it is not a call that we know.
// likeDequeue is true for a script call with the keys of a dequeue, known or not.
func parse(cmd redis.Cmder) (c call, likeDequeue bool) {
	args := cmd.Args() // [evalsha, sha, number of keys, keys..., argv...]
	if len(args) < 4 {
		return c, false
	}
	name, ok := args[0].(string)
	if !ok || len(name) < 4 || !strings.EqualFold(name[:4], "eval") {
		return c, false
	}
	script, ok := args[1].(string)
	n, isInt := args[2].(int)
	if !ok || !isInt || n < 1 || len(args) < 3+n {
		return c, false
	}
	if strings.EqualFold(name, "eval") {
		c.source, script = script, scriptSHA(script)
	} else if !strings.EqualFold(name, "evalsha") {
		return c, false
	}
	c.sha = script
	c.keys, c.argv = args[3:3+n], args[3+n:]
	op, key := opOf(script), c.keys[0]
	if (op == opRetry || op == opArchive) && n > 1 {
		// Their first key is the task's own, and its id may hold anything, also
		// what ends a queue's name. The second is that of the active tasks.
		key = c.keys[1]
	}
	name, _ = key.(string)
	if c.queue, ok = queueOf(name); !ok {
		return c, false
	}
	c.op = op
	return c, n == 4 && c.hasSuffixes(":pending", ":paused", ":active", ":lease")
}

func (c call) hasSuffixes(suffixes ...string) bool {
	for i, suffix := range suffixes {
		if key, ok := c.keys[i].(string); !ok || !strings.HasSuffix(key, suffix) {
			return false
		}
	}
	return true
}

// arg returns the i-th argument as text, "" when it is none.
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

// scriptSHA returns the name that Redis gives a script.
func scriptSHA(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}
