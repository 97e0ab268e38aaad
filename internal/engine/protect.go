package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Functions of the user, but for the handler, are run by one of those below, so that none of them can end the process, or a
// goroutine that is still needed: try and caught for those whose failure is an error of a task, protect for those that have an answer
// to fall back to, tell and a teller for those that are only told something. What nobody can recover from, such as a fatal error of
// the runtime, still ends the process.

// watch calls f. If f panics or ends its goroutine, it calls broke, and a panic ends there.
func watch(f func(), broke func(*brokenError)) {
	returned := false
	defer func() {
		if !returned {
			broke(broken(recover()))
		}
	}()
	f()
	returned = true
}

// try returns what f returns, or a [*brokenError] if f panics or ends its goroutine. A call of [runtime.Goexit], also
// by [testing.T.FailNow], cannot be stopped in its own goroutine, so f has another one, which takes about a
// microsecond.
func try[T any](f func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(func() { result, err = f() }, func(b *brokenError) { err = b })
	}()
	<-done
	return result, err
}

// caught is try in the goroutine of its caller, for an attempt: [loop.runAttempt] notices if f ends that.
func caught[T any](f func() (T, error)) (result T, err error) {
	watch(func() { result, err = f() }, func(b *brokenError) { err = b })
	return result, err
}

// protect returns what f returns. If f breaks, protect logs that and returns fallback. what names f for people.
func protect[T any](ctx context.Context, logger *slog.Logger, what string, fallback T, f func() T) T {
	result, err := try(func() (T, error) { return f(), nil })
	if err != nil {
		logBroken(ctx, logger, what, err)
		return fallback
	}
	return result
}

// tell calls f. If f breaks, tell logs that.
func tell(ctx context.Context, logger *slog.Logger, what string, f func()) {
	protect(ctx, logger, what, struct{}{}, func() struct{} { f(); return struct{}{} })
}

// A teller tells functions of the user things one after the other, in a goroutine of its own while there is something to tell: the
// loop, which keeps the locks, must not wait for them.
type teller struct {
	goroutines *goroutines

	mu      sync.Mutex
	waiting []func()
	done    chan struct{} // closed when all has been told; nil if it has been
}

func (t *teller) tell(ctx context.Context, logger *slog.Logger, what string, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, func() {
		watch(f, func(b *brokenError) { logBroken(ctx, logger, what, b) })
	})
	if t.done == nil {
		done := make(chan struct{})
		t.done = done
		t.goroutines.run(func() { t.run(done) })
	}
}

func (t *teller) run(done chan struct{}) {
	over := false
	defer func() {
		if over {
			close(done)
		} else {
			t.goroutines.run(func() { t.run(done) }) // a function has ended this goroutine
		}
	}()
	for {
		t.mu.Lock()
		if over = len(t.waiting) == 0; over {
			t.waiting, t.done = nil, nil
			t.mu.Unlock()
			return
		}
		f := t.waiting[0]
		t.waiting = t.waiting[1:]
		t.mu.Unlock()
		f()
	}
}

// wait returns when all has been told.
func (t *teller) wait() {
	t.mu.Lock()
	done := t.done
	t.mu.Unlock()
	if done != nil {
		<-done
	}
}

// logBroken logs an error of a function of the user, with the stack if there is one.
func logBroken(ctx context.Context, logger *slog.Logger, what string, err error, attrs ...any) {
	attrs = append(attrs, "function", what, "error", err)
	if b, ok := err.(*brokenError); ok { //nolint:errorlint // a wrapped one is another's
		attrs = append(attrs, "stack", string(b.stack))
	}
	logger.ErrorContext(ctx, "a function of the program has failed", attrs...)
}

// A brokenError is the error of a function that did not return. Its text is what asynq has after "panic error cause
// by: ", but has the value only if that is a text, an error or a number: the value may be a task, and a payload
// belongs in no log. asynq.IsPanicError knows a [panicError] only.
type brokenError struct {
	text  string
	stack []byte
}

func (e *brokenError) Error() string { return e.text }

// broken makes an error of what a deferred function has recovered; nil means that the goroutine was ended.
func broken(value any) *brokenError {
	e := &brokenError{text: "runtime.Goexit was called" + where(), stack: debug.Stack()}
	if value != nil {
		e.text = "panic" + where() + ": " + describe(value)
	}
	return e
}

// where says where the code was that did not return.
func where() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for unwinding := false; ; {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.") || strings.HasPrefix(frame.Function, "internal/runtime/")
		if unwinding && !inRuntime {
			return fmt.Sprintf(" [%s:%d]", frame.File, frame.Line)
		}
		unwinding = unwinding || inRuntime
		if !more {
			return ""
		}
	}
}

func describe(value any) string {
	switch value.(type) {
	case error, fmt.Stringer, string, bool, int, int64, uint64, float64:
		return fmt.Sprint(value)
	default:
		return fmt.Sprintf("%T", value)
	}
}
