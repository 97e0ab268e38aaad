package asynqredis

import (
	_ "embed"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	asynqPath = "github.com/hibiken/asynq"
	// asynqVersion is the one that this package knows. Its scripts are in asynq.scripts.
	asynqVersion = "v0.26.0"
)

//go:embed asynq.scripts
var asynqScripts string

// known are the scripts of asynq, by their SHA1.
var known = opsOf(asynqScripts)

func opsOf(table string) map[string]op {
	ops := map[string]op{
		"dequeue": opDequeue,
		"done":    opDone, "doneUnique": opDone,
		"markAsComplete": opComplete, "markAsCompleteUnique": opComplete,
		"requeue": opRequeue, "retry": opRetry, "archive": opArchive,
		"listLeaseExpired": opListExpired,
	}
	found := make(map[string]op)
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 2 {
			found[words[1]] = ops[words[0]]
		}
	}
	return found
}

// ours are the scripts of this package, by their SHA1. They may come through a hook, as a guard and a
// server may share a client.
var ours sync.Map

// ownScript returns a script of this package for a client.
func ownScript(source string) *redis.Script {
	s := redis.NewScript(source)
	ours.Store(s.Hash(), nil)
	return s
}

// unknown reports whether c runs a script on asynq's keys that neither the known asynq nor this
// package has.
func (c call) unknown() bool {
	if c.sha == "" {
		return false
	}
	key, _ := c.keys[0].(string)
	if _, ok := known[c.sha]; ok || !strings.HasPrefix(key, "asynq:{") {
		return false
	}
	_, ok := ours.Load(c.sha)
	return !ok
}

// otherAsynq says which asynq a program was built with that is not the known one; "" when it is, and
// when the program does not tell: then its scripts do.
func otherAsynq(build *debug.BuildInfo) string {
	if build == nil {
		return ""
	}
	for _, m := range build.Deps {
		if m.Path == asynqPath && m.Replace == nil && m.Version != asynqVersion && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return ""
}

// mismatch has the hook change no call any more, but for those by which asynq ends an attempt that is
// to be parked: asynq is not the one that this package knows.
func (h *Hook) mismatch(have string) {
	if !h.mismatched.Swap(true) {
		h.logger.Error("asynq is not the one known: waiting tasks stand in no line, and come by timers", "want", asynqVersion, "have", have)
	}
}

// Mismatched reports whether asynq is not the one that this package knows.
func (h *Hook) Mismatched() bool { return h.mismatched.Load() }

// ended returns the task whose attempt c ends, or "" where it ends none. Of an unknown script its keys
// tell: the task's and that of the active tasks are among them. Where that of the pending ones is,
// too, the task is put back.
func (c call) ended() (queue, id string) {
	if c.op.ends() {
		return c.queue, c.arg(0)
	}
	if !c.unknown() {
		return "", ""
	}
	has := make(map[string]bool, len(c.keys))
	for _, k := range c.keys {
		key, _ := k.(string)
		has[key] = true
	}
	for active := range has {
		queue, ok := queueOf(active)
		if !ok || active != activeKey(queue) || has[pendingKey(queue)] {
			continue
		}
		for key := range has {
			if id, ok := strings.CutPrefix(key, taskKeyPrefix(queue)); ok && id != "" { // alone it is a key, too
				return queue, id
			}
		}
	}
	return "", ""
}
