package hook

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

const (
	asynqPath = "github.com/hibiken/asynq"
	// AsynqVersion is the version of asynq that a Hook knows. asynq.scripts has the scripts of that
	// version.
	AsynqVersion = "v0.26.0"
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

// otherAsynq returns the version of an asynq that is not the known one. It returns "" for the known
// one, and for a program that does not tell its modules. Then the scripts show which asynq runs.
func otherAsynq(build *debug.BuildInfo) string {
	if build == nil {
		return ""
	}
	for _, m := range build.Deps {
		if m.Path == asynqPath && m.Replace == nil && m.Version != AsynqVersion && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return ""
}

// mismatch tells the hook that asynq is not the one that this package knows. From then on the hook
// changes only the entries of servers, and the calls that end an attempt which waits to be parked.
func (h *Hook) mismatch(have string) {
	if !h.mismatched.Swap(true) {
		h.logger.Error("asynq is not the one known: waiting tasks are not queued, and come at their fallback times", "want", AsynqVersion, "have", have)
	}
}

// Mismatched reports whether asynq is not the one that this package knows.
func (h *Hook) Mismatched() bool { return h.mismatched.Load() }
