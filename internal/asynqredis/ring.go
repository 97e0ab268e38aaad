package asynqredis

import (
	"context"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed bell.lua
	bellSource string
	//go:embed ring.lua
	ringSource string
)

// learned are asynq's scripts in a form of our own, known by the SHA1 of asynq's.
type learned struct {
	mu      sync.Mutex
	scripts map[string]script
}

// script returns what is sent for c: asynq's script as change makes it. It is not
// known before asynq has sent the text of its own, which it does when it is told that
// Redis does not know it.
func (s *learned) script(c call, change func(source string) string) (script, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.scripts[c.sha]; !ok && c.source != "" {
		if s.scripts == nil {
			s.scripts = make(map[string]script)
		}
		s.scripts[c.sha] = newScript(change(c.source))
	}
	found, ok := s.scripts[c.sha]
	return found, ok
}

// noScriptError is Redis' answer to the name of a script that it does not know.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT the text of the script is not known yet" }

// RedisError makes it one of Redis, as [redis.Error] wants.
func (noScriptError) RedisError() {}

// withRing has one of asynq's scripts ring the bell. The keys of ringKeys come last.
func withRing(source string) string {
	return bellSource + "local function asynq()\n" + source + "\nend\n" + ringSource
}

// ringKeys returns the keys of a script with those that it rings with.
func ringKeys(keys []any, queue string) []any {
	return append(slices.Clip(keys), pendingKey(queue), bellKey(queue))
}

// rings are asynq's scripts that may put tasks into pending: all that have it among
// their keys, whatever else they do, but for dequeues and acknowledgements.
type rings struct {
	each learned
	once learned // for calls of Once
}

// ringing returns c as it is sent so that it also rings the bell of its queue.
func (r *rings) ringing(ctx context.Context, c call) (_ gathered, known bool) {
	scripts, keys, argv, change := &r.each, c.keys, c.argv, func(source string) string { return source }
	if queue, ok := c.pendingOf(); ok {
		keys, change = ringKeys(c.keys, queue), withRing
	}
	if once := onceArgs(ctx, c); once != nil {
		ring := change
		scripts, argv, change = &r.once, append(slices.Clip(argv), once...), func(source string) string { return withOnce(ring(source)) }
	}
	s, known := scripts.script(c, change)
	return gathered{s, keys, argv}, known
}

// send sends it.
func (r *rings) send(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	g, known := r.ringing(ctx, c)
	if !known {
		return answer(cmd, nil, noScriptError{})
	}
	got, err := run(ctx, next, g.script, g.keys, g.argv...)
	return answer(cmd, got, err)
}

// pendingOf returns the queue whose pending tasks c has among its keys. A task's key,
// which may end like anything, is told from theirs by the others: it begins none of them.
func (c call) pendingOf() (queue string, ok bool) {
	for _, k := range c.keys {
		key, _ := k.(string)
		if !strings.HasSuffix(key, "}:pending") {
			continue
		}
		queue, ok := queueOf(key)
		foreign := func(k any) bool { key, _ := k.(string); return !strings.HasPrefix(key, prefix(queue)) }
		if ok && !slices.ContainsFunc(c.keys, foreign) {
			return queue, true
		}
	}
	return "", false
}
