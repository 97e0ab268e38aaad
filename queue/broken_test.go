package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// serveBy is serve by Handle, or of jobs whose resource a function finds.
func (b *bundle) serveBy(cfg queue.ServerConfig) {
	b.Helper()
	if cfg.Resources == nil {
		b.serve(cfg, b.run)
		return
	}
	cfg.Handler = handlerOf(b.run)
	start(b, b.newServer(cfg))
}

// A function of the program that panics, or ends its goroutine, stops neither the process nor the server, and no other task.
func TestFunctionsThatBreak(t *testing.T) {
	t.Parallel()
	for what, breaks := range map[string]func(){"panic": func() { panic("a mistake") }, "goexit": runtime.Goexit} {
		for name, tt := range map[string]struct {
			set    func(*queue.ServerConfig)
			want   asynq.TaskState // of the task that meets it; 0 if it succeeds
			policy *queue.Policy
			fails  bool
		}{
			"ResourceFunc": {set: func(c *queue.ServerConfig) {
				c.Resources = resourcesBy(func(j job) (string, error) {
					if j.N == 1 {
						breaks()
					}
					return j.Res, nil
				})
			}, want: asynq.TaskStateArchived},
			"Observe": {set: func(c *queue.ServerConfig) {
				c.Observe = func(e queue.Event) {
					if what == "panic" || e.Kind == queue.EventParked || e.Kind == queue.EventReleased {
						breaks()
					}
				}
			}},
			"OnMaxWait": {set: func(c *queue.ServerConfig) {
				c.OnMaxWait = func(context.Context, *asynq.Task) error { breaks(); return nil }
			}, policy: &queue.Policy{MaxWait: time.Second}, want: asynq.TaskStateArchived},
			"RetryDelayFunc": {set: func(c *queue.ServerConfig) {
				c.Asynq.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { breaks(); return 0 }
			}, fails: true, want: asynq.TaskStateRetry},
			"IsFailure": {set: func(c *queue.ServerConfig) {
				c.Asynq.IsFailure = func(error) bool { breaks(); return false }
			}, fails: true, want: asynq.TaskStateRetry},
			"ErrorHandler": {set: func(c *queue.ServerConfig) {
				c.Asynq.ErrorHandler = asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { breaks() })
			}, fails: true, want: asynq.TaskStateRetry},
			"BaseContext": {set: func(c *queue.ServerConfig) {
				c.Asynq.BaseContext = func() context.Context { breaks(); return nil }
			}},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				b, logs := setup(t), newLogs(t)
				cfg := queue.ServerConfig{Logger: logs.logger}
				tt.set(&cfg)
				b.serveBy(cfg)
				if tt.fails {
					b.act(1, func() error { return errors.New("out of stock") })
				}
				g := b.occupy()
				o := queue.Options{Policy: tt.policy, Retries: 9}
				if tt.policy != nil {
					o.Retries = queue.NoRetries
				}
				id := b.enqueue(b.job(1), o)
				if tt.policy != nil {
					b.awaitState(id, tt.want) // it waits for too long
				}
				next := b.enqueue(b.job(2))
				g.open()
				if tt.want == 0 {
					b.awaitGone(id)
				} else {
					expect.Eventually(t, "the end of the task", func() bool {
						info, err := b.inspector.GetTaskInfo(b.queue, id)
						return err == nil && info.State == tt.want && info.LastErr != "" && !strings.HasPrefix(info.LastErr, "waits for ")
					})
				}
				b.awaitGone(next)
				if name == "Observe" && what == "panic" {
					expect.Eventually(t, "the panics in the log", func() bool { return len(logs.lines("Observe has panicked", slog.LevelError)) > 4 })
				}
				expect.Equal(t, "lock", b.value(), "")
			})
		}
	}
}

// A server is ready if Available says so. One that panics, ends its goroutine or does not return says no.
func TestReadyOfWhatTasksNeed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	available := func() error { return nil }
	s := b.newServer(queue.ServerConfig{Available: func(context.Context) error { return available() }})
	t.Cleanup(func() { shutdown(t, s) })
	wantReady(t, s, "")
	available = func() error { return errFull }
	wantReady(t, s, errFull.Error())
	available = func() error { panic("a mistake") }
	wantReady(t, s, "a mistake")
	available = func() error { runtime.Goexit(); return nil }
	wantReady(t, s, "has ended its goroutine")
	hangs := make(chan struct{})
	defer close(hangs)
	available = func() error { <-hangs; return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := s.Ready(ctx)
	expect.That(t, errors.Is(err, context.DeadlineExceeded), "want the end of its context, have %v", err)
}

// A call of Available that breaks is not the last one: the tasks run once a later one says so.
func TestAvailableThatBreaks(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	eachOf(t, onOne, map[string]func(){
		"panics": func() { panic("a mistake") }, "goexit": runtime.Goexit, "hangs": func() { <-hangs },
	}, func(b *bundle, breaks func()) {
		var asked, runs atomic.Int64
		b.serve(queue.ServerConfig{Available: func(context.Context) error {
			if asked.Add(1) == 1 {
				breaks()
			}
			return nil
		}}, func(context.Context, job) error {
			if runs.Add(1) == 1 {
				return queue.Unavailable(errFull)
			}
			return nil
		})
		b.awaitGone(b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries}))
	})
}

// asynq refuses to read a task whose error is no UTF-8. Such an error is like any other, with U+FFFD in it.
func TestErrorsThatAreNoText(t *testing.T) {
	t.Parallel()
	const bad = "disk \xff\xfe is full"
	type row struct {
		act    func() error
		set    func(*queue.ServerConfig)
		policy *queue.Policy
		state  asynq.TaskState
	}
	eachOf(t, onOne, map[string]row{
		"returned":  {act: func() error { return errors.New(bad) }, state: asynq.TaskStateRetry},
		"permanent": {act: func() error { return queue.Permanent(errors.New(bad)) }, state: asynq.TaskStateArchived},
		"panicked":  {act: func() error { panic(bad) }, state: asynq.TaskStateRetry},
		"missing":   {act: func() error { return queue.Unavailable(errors.New(bad)) }, state: asynq.TaskStateRetry},
		"of a ResourceFunc": {set: func(c *queue.ServerConfig) {
			c.Resources = resourcesBy(func(job) (string, error) { return "", errors.New(bad) })
		}, state: asynq.TaskStateArchived},
		"of OnMaxWait": {set: func(c *queue.ServerConfig) {
			c.OnMaxWait = func(context.Context, *asynq.Task) error { return errors.New(bad) }
		}, policy: &queue.Policy{MaxWait: time.Second}, state: asynq.TaskStateRetry},
	}, func(b *bundle, tt row) {
		cfg := queue.ServerConfig{}
		cfg.Asynq.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		if tt.set != nil {
			tt.set(&cfg)
		}
		b.serveBy(cfg)
		if tt.act != nil {
			b.act(1, tt.act)
		}
		if tt.policy != nil {
			b.occupy()
		}
		id := b.enqueue(b.job(1), queue.Options{Policy: tt.policy, Retries: 3})
		expect.Eventually(b, "the error of the task", func() bool {
			info, err := b.inspector.GetTaskInfo(b.queue, id)
			return err == nil && info.State == tt.state && utf8.ValidString(info.LastErr) &&
				strings.Contains(info.LastErr, "disk ") && strings.Contains(info.LastErr, "\ufffd") && strings.Contains(info.LastErr, " is full")
		})
	})
}

// A nilError has no text while it is nil.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error that cannot say what it is, such as a nil pointer in the interface, is a failure like others, told once.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	type row struct {
		err    error
		told   int // times
		reason string
		state  asynq.TaskState
	}
	eachOf(t, onOne, map[string]row{
		"nil":       {(*nilError)(nil), 1, "<nil>", asynq.TaskStateRetry},
		"permanent": {queue.Permanent((*nilError)(nil)), 1, "<nil>", asynq.TaskStateArchived},
		"missing":   {queue.Unavailable((*nilError)(nil)), 0, "nil pointer", asynq.TaskStateRetry},
	}, func(b *bundle, tt row) {
		var told atomic.Int32
		cfg := queue.ServerConfig{}
		cfg.Asynq.ErrorHandler = asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { told.Add(1) })
		b.serve(cfg, b.run)
		b.act(1, func() error { return tt.err })
		id := b.enqueue(b.job(1))
		info := b.awaitState(id, tt.state)
		expect.That(b, strings.Contains(info.LastErr, tt.reason) && int(told.Load()) == tt.told,
			"want %q, told %d times, have %q, %d times", tt.reason, tt.told, info.LastErr, told.Load())
	})
}

// A pointer may be a task. The payload null is none.
type pointed struct{ Res string }

func (*pointed) Kind() string { return "test:pointed" }
func (p *pointed) Resource() string {
	return p.Res
}
