package asynqdiff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A record has the calls of handlers and of the functions of the configuration.
type record struct {
	mu       sync.Mutex
	calls    []string // in their order
	groups   []string // calls of the aggregator, beside which handlers run
	attempts []*attempt
	bases    int // calls of BaseContext
}

func (r *record) call(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

// An attempt is a call of the handler.
type attempt struct {
	r    *rig
	on   *server
	task *asynq.Task
	n    int // of its task, from 1

	end   func() error // of the context
	cause func() error
	said  string // by the handler
	left  string // how the context was when the handler left, "" before; guarded by record.mu
}

// begin notes what a handler sees.
func (r *rig) begin(ctx context.Context, on *server, t *asynq.Task) *attempt {
	a := &attempt{r: r, on: on, task: t, end: ctx.Err, cause: func() error { return context.Cause(ctx) }}
	saw := sees(ctx, t)
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	a.n = 1
	for _, other := range r.record.attempts {
		if other.task.Type() == t.Type() {
			a.n++
		}
	}
	r.record.attempts = append(r.record.attempts, a)
	r.record.calls = append(r.record.calls, fmt.Sprintf("handler %s, attempt %d: %s", t.Type(), a.n, saw))
	return a
}

// leave notes that the handler returns, panics or exits.
func (a *attempt) leave() {
	left := fmt.Sprintf("%sleft with %s, cause %s", a.said, kind(a.end()), kind(a.cause()))
	if a.on.dead.Load() {
		left = "left after the crash"
	}
	a.r.record.mu.Lock()
	defer a.r.record.mu.Unlock()
	a.left = left
}

// say notes something that the handler does.
func (a *attempt) say(format string, args ...any) { a.said += fmt.Sprintf(format, args...) + ", " }

// write writes a result of the task.
func (a *attempt) write(result string) {
	n, err := a.task.ResultWriter().Write([]byte(result))
	a.say("wrote a result (%d, %s)", n, says(err))
}

// wait waits until the play opens the task.
func (a *attempt) wait() { <-a.r.gate(a.task.Type()) }

// Some things asynq does and others need not do, or the other way round. Who waits for one waits only for a time:
// a long one for what asynq does, and a short one for what it does not.
const (
	asynqDoes = 5 * time.Second
	others    = time.Second
)

// seen waits for something for a time, and says whether it came.
func seen(ctx context.Context, limit time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return expect.Until(ctx, func() error {
		if !ok() {
			return errNotYet
		}
		return nil
	}) == nil
}

var errNotYet = errors.New("not yet")

// begun returns how many attempts a task has had, and how many of them have left.
func (r *record) begun(name string) (begun, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attempts {
		if a.task.Type() == name {
			begun++
			if a.left != "" {
				left++
			}
		}
	}
	return begun, left
}

// allLeft says whether no handler runs.
func (r *record) allLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.left == "" })
}

// lines returns the record as text. Handlers that run side by side call in any order.
func (r *record) lines(ordered bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, groups := slices.Clone(r.calls), slices.Clone(r.groups)
	if !ordered {
		slices.Sort(calls)
		slices.Sort(groups)
	}
	var ends []string
	for _, a := range r.attempts {
		line := fmt.Sprintf("handler %s, attempt %d: %s", a.task.Type(), a.n, a.left)
		if !a.on.dead.Load() {
			line += ", ended with " + kind(a.end())
		}
		ends = append(ends, line)
	}
	slices.Sort(ends)
	if n := len(calls); n > 100 { // of tasks that are all alike
		calls, ends = []string{fmt.Sprintf("%d calls", n)}, nil
	}
	return slices.Concat([]string{"# calls"}, calls, groups, []string{fmt.Sprintf("base contexts: %d", r.bases), "# how handlers ended"}, ends)
}

type baseKey struct{}

// listen has the record note what a server calls. Functions that a scenario has set to nil stay so.
func (r *rig) listen(on *server, c *asynq.Config) {
	base, isFailure, delay, onError := c.BaseContext, c.IsFailure, c.RetryDelayFunc, c.ErrorHandler
	aggregator, health := c.GroupAggregator, c.HealthCheckFunc
	note := func(format string, args ...any) {
		if !on.dead.Load() {
			r.record.call(format, args...)
		}
	}
	if base != nil {
		c.BaseContext = func() context.Context {
			r.record.mu.Lock()
			defer r.record.mu.Unlock()
			r.record.bases++
			return context.WithValue(base(), baseKey{}, "base")
		}
	}
	if isFailure != nil {
		c.IsFailure = func(err error) bool {
			is := isFailure(err)
			note("IsFailure(%s) = %t", says(err), is)
			return is
		}
	}
	if delay != nil {
		c.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
			d := delay(n, err, t)
			note("RetryDelayFunc(%d, %s, %s) = %v", n, says(err), shows(t), d)
			return d
		}
	}
	if onError != nil {
		c.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			note("ErrorHandler: %s, context %s: %s", says(err), kind(ctx.Err()), sees(ctx, t))
			onError.HandleError(ctx, t, err)
		})
	}
	if aggregator != nil {
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			all := make([]string, len(tasks))
			for i, t := range tasks {
				all[i] = shows(t)
			}
			r.record.mu.Lock()
			r.record.groups = append(r.record.groups, fmt.Sprintf("GroupAggregator %s: %s", group, strings.Join(all, "; ")))
			r.record.mu.Unlock()
			return aggregator.Aggregate(group, tasks)
		})
	}
	if health != nil {
		var once sync.Once // how often it is called depends on how long the play takes
		c.HealthCheckFunc = func(err error) {
			once.Do(func() { note("HealthCheckFunc(%s)", says(err)) })
			health(err)
		}
	}
}

// sees returns what can be seen of a task and its context.
func sees(ctx context.Context, t *asynq.Task) string {
	id, ok1 := asynq.GetTaskID(ctx)
	retried, ok2 := asynq.GetRetryCount(ctx)
	retries, ok3 := asynq.GetMaxRetry(ctx)
	queue, ok4 := asynq.GetQueueName(ctx)
	ends := "never"
	if deadline, ok := ctx.Deadline(); ok {
		ends = when(time.Until(deadline))
		if deadline.Nanosecond() == 0 {
			ends += " in whole seconds"
		}
	}
	return fmt.Sprintf("%s, id %s %t, retried %d %t of %d %t, queue %q %t, deadline %s, base %v", shows(t),
		id, ok1, retried, ok2, retries, ok3, queue, ok4, ends, ctx.Value(baseKey{}))
}

// shows returns what can be seen of a task alone.
func shows(t *asynq.Task) string {
	writer := "no writer"
	if w := t.ResultWriter(); w != nil {
		writer = "writer of " + w.TaskID()
	}
	return fmt.Sprintf("task %q payload %s headers %s %s", t.Type(), short(t.Payload()), named(t.Headers()), writer)
}

// kind names the error of a context.
func kind(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return err.Error()
	}
}

// classes are what errors.Is is asked.
var classes = []error{
	errBoom, errMinor, asynq.SkipRetry, asynq.RevokeTask, asynq.ErrLeaseExpired, context.DeadlineExceeded, context.Canceled,
	asynq.ErrDuplicateTask, asynq.ErrTaskIDConflict, asynq.ErrTaskNotFound, asynq.ErrQueueNotFound, asynq.ErrQueueNotEmpty,
}

// says returns an error's text, and which errors it is.
func says(err error) string {
	if err == nil {
		return "nil"
	}
	text := short([]byte(err.Error()))
	for _, class := range classes {
		if errors.Is(err, class) {
			text += fmt.Sprintf(" (%v)", class)
		}
	}
	if asynq.IsPanicError(err) {
		text += " (a panic)"
	}
	return text
}
