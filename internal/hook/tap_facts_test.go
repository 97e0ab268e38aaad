package hook_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errCutOff is what a command gets while its connection is cut off.
var errCutOff = errors.New("tap: cut off")

// A tap is a hook on a connection that asynq uses. The tap writes down the script calls, and can
// cut the connection off.
type tap struct {
	mu     sync.Mutex
	cut    func(scriptCall) bool
	notify func(scriptCall)
	record []scriptCall
}

// A scriptCall is one EVALSHA or EVAL.
type scriptCall struct {
	command string // "evalsha" or "eval"
	sha     string // the script's digest, also of an EVAL
	keys    []string
	argv    []any
	ctx     context.Context //nolint:containedctx // what asynq passed along
	ctxErr  error           // of ctx, when the call came
	reply   any
	err     error
}

// suffix returns the last word of the i-th key.
func (c scriptCall) suffix(i int) string {
	return c.keys[i][strings.LastIndexByte(c.keys[i], ':')+1:]
}

// is reports whether the call has these keys, named by their last words.
func (c scriptCall) is(suffixes ...string) bool {
	return slices.EqualFunc(c.keys, suffixes, func(key, suffix string) bool { return strings.HasSuffix(key, ":"+suffix) })
}

func (c scriptCall) isDequeue() bool { return c.is("pending", "paused", "active", "lease") }

// cutOff fails, from now on, every command for which when is true without
// sending it. A command that is no script call is an empty one.
func (tp *tap) cutOff(when func(scriptCall) bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.cut = when
}

// heal ends a cut.
func (tp *tap) heal() { tp.cutOff(nil) }

func everything(scriptCall) bool { return true }

// onReply has every script call that [tap.calls] would return told to f.
func (tp *tap) onReply(f func(scriptCall)) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.notify = f
}

// unknown reports whether Redis did not know the script by its digest: the same
// call with the text follows.
func (c scriptCall) unknown() bool { return redis.HasErrorPrefix(c.err, "NOSCRIPT") }

// calls returns those of the calls so far that fit. It leaves out tries by a digest that Redis did
// not know.
func (tp *tap) calls(fit func(scriptCall) bool) []scriptCall {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var found []scriptCall
	for _, c := range tp.record {
		if !c.unknown() && fit(c) {
			found = append(found, c)
		}
	}
	return found
}

func (*tap) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (tp *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, isScript := parseCall(cmd)
		c.ctx, c.ctxErr = ctx, ctx.Err()
		tp.mu.Lock()
		cut := tp.cut != nil && tp.cut(c)
		tp.mu.Unlock()
		var err error
		if cut {
			err = errCutOff
			cmd.SetErr(err)
		} else {
			err = next(ctx, cmd)
		}
		if isScript {
			c.err = err
			if got, ok := cmd.(*redis.Cmd); ok {
				c.reply = got.Val()
			}
			tp.mu.Lock()
			tp.record = append(tp.record, c)
			notify := tp.notify
			tp.mu.Unlock()
			if notify != nil && !c.unknown() {
				notify(c)
			}
		}
		return err
	}
}

// parseCall takes a script call apart: name, script, number of keys, keys, arguments.
func parseCall(cmd redis.Cmder) (c scriptCall, ok bool) {
	args := cmd.Args()
	name, _ := args[0].(string)
	name = strings.ToLower(name)
	if name != "eval" && name != "evalsha" {
		return c, false
	}
	c.command = name
	c.sha, _ = args[1].(string)
	if name == "eval" {
		sum := sha1.Sum([]byte(c.sha)) // Redis's name for the script
		c.sha = hex.EncodeToString(sum[:])
	}
	n, _ := args[2].(int)
	for _, key := range args[3 : 3+n] {
		text, _ := key.(string)
		c.keys = append(c.keys, text)
	}
	c.argv = args[3+n:]
	return c, true
}
