package hook

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
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

// sidingPath is the path of this module.
const sidingPath = "github.com/sidingq/siding"

// versionsOf names the versions of Siding, asynq and Go that a program is built with.
func versionsOf(build *debug.BuildInfo) string {
	siding, asynq := "not known", "not known"
	if build != nil {
		for _, m := range append([]*debug.Module{&build.Main}, build.Deps...) {
			version := m.Version
			if m.Replace != nil { // by a folder, whose path is no module's, or by another version
				version = cmp.Or(m.Replace.Version, version)
			}
			switch m.Path {
			case sidingPath:
				siding = cmp.Or(version, "(devel)")
			case asynqPath:
				asynq = version
			}
		}
	}
	return fmt.Sprintf("siding %s, asynq %s, %s", siding, asynq, runtime.Version())
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
