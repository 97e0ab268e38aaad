package hook

import (
	"context"
	_ "embed"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

//go:embed notifying.lua
var notifyingSource string

// scriptCache are asynq's scripts in forms of our own, by the SHA1 of asynq's and the form.
type scriptCache struct{ scripts sync.Map }

// script returns the script that is sent for c: asynq's own in a form, as change makes it. known is
// false before asynq has sent the text of its script. asynq sends the text when Redis seems not to
// know the script.
func (s *scriptCache) script(c call, form string, change func(source string) string) (script asynqredis.Script, known bool) {
	if c.source != "" {
		s.scripts.Store(c.sha+form, asynqredis.NewScript(change(c.source)))
	}
	found, known := s.scripts.Load(c.sha + form)
	script, _ = found.(asynqredis.Script)
	return script, known
}

// noScriptError is Redis' answer to the name of a script that it does not know.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT the text of the script is not known yet" }

// RedisError makes a noScriptError an error of Redis, see [redis.Error].
func (noScriptError) RedisError() {}

// withNotify has one of asynq's scripts notify its queue. The keys of notifyKeys come last.
func withNotify(source string) string {
	return asynqredis.NotifyLua + "local function asynq()\n" + source + "\nend\n" + notifyingSource
}

// notifyKeys returns the keys of a script with those that it notifies with.
func notifyKeys(keys []any, queue string) []any {
	return append(slices.Clip(keys), asynqredis.PendingKey(queue), asynqredis.NotifyKey(queue))
}

// notified returns c as a call that also notifies its queue, if c may put tasks into pending. All
// calls may that have the pending tasks among their keys, except dequeues and acknowledgements.
func (s *scriptCache) notified(ctx context.Context, c call) (_ gathered, known bool) {
	form, keys, argv, change := "", c.keys, c.argv, func(source string) string { return source }
	if queue, ok := c.pendingOf(); ok {
		keys, change = notifyKeys(c.keys, queue), withNotify
	}
	if once := onceArgs(ctx, c); once != nil {
		inner := change
		form, argv, change = " once", append(slices.Clip(argv), once...), func(source string) string { return withOnce(inner(source)) }
	}
	script, known := s.script(c, form, change)
	return gathered{script, keys, argv}, known
}

// notify sends c as notified returns it.
func (s *scriptCache) notify(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	g, known := s.notified(ctx, c)
	if !known {
		return answer(cmd, nil, noScriptError{})
	}
	got, err := g.script.Run(ctx, next, g.keys, g.argv...)
	return answer(cmd, got, err)
}
