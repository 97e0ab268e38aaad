package hook

import (
	"context"
	"runtime/debug"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/fetch"
)

// Over reports whether f has ended its attempt, or has found it over.
func (f *Finish) Over() bool { return f.over }

// An asking is the fetcher of a server whose dequeues are all sent on.
type asking struct{}

func (asking) Dequeue(_ context.Context, queue string, scan fetch.Scan) (fetch.Task, error) {
	return scan(queue)
}
func (asking) Wants(string, bool) (w fetch.Wanted) { return w }
func (asking) Deliver(fetch.Task)                  { panic("want no prefetched task") }

// Tests that need no fetcher have a hook itself on their connection.

func (h *Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return h.Server(asking{}).ProcessHook(next)
}

// Versions are those that the test runs.
func Versions() string {
	build, _ := debug.ReadBuildInfo()
	return versionsOf(build)
}

// VersionsOf names the versions of a program.
var VersionsOf = versionsOf
