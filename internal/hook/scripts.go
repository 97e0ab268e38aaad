package hook

import (
	_ "embed"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sidingq/siding/internal/asynqredis"
)

const (
	asynqPath = "github.com/hibiken/asynq"
	// asynqVersion is the version that this package knows. Its scripts are in asynq.scripts.
	asynqVersion = "v0.26.0"
)

//go:embed asynq.scripts
var asynqScripts string

// known are the scripts of asynq, by their SHA1.
var known = opsOf(asynqScripts)

func opsOf(table string) map[string]op {
	found := make(map[string]op)
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 2 {
			found[words[1]] = op(strings.TrimSuffix(words[0], "Unique"))
		}
	}
	return found
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

// otherAsynq returns the version of an asynq that is not the known one. It returns "" for the known one,
// and if the program does not tell. Then the scripts show which one it is.
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

// mismatch makes the hook change no calls except those by which asynq ends an attempt that waits to be
// parked. asynq is not the one that this package knows.
func (h *Hook) mismatch(have string) {
	if !h.mismatched.Swap(true) {
		h.logger.Error("asynq is not the one known: waiting tasks are not queued, and come at their fallback times", "want", asynqVersion, "have", have)
	}
}

// Mismatched reports whether asynq is not the one that this package knows.
func (h *Hook) Mismatched() bool { return h.mismatched.Load() }

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
