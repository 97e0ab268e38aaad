package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Task is a unit of business work: a plain struct that marshals to JSON and
// knows its kind, the name under which handlers are registered, such as
// "order:audit". Kind is called on zero values too.
type Task interface {
	Kind() string
}

// A Guarded task must not run at the same time as another one on the same
// resource, such as "order:536365". An empty resource is an error; a task that
// needs no lock does not implement Guarded.
type Guarded interface {
	Task
	Resource() string
}

// A Validator checks its own payload. The client refuses to enqueue a task
// that is not valid; a worker archives one at once, as no retry can mend it.
type Validator interface {
	Validate() error
}

// Limits of what a client accepts; a larger task is refused with a
// [*TaskError]. Redis keeps every byte in memory: store large documents
// elsewhere and enqueue their names. The one header that a client sets is the
// resource, of at most [lock.MaxResource] bytes.
const (
	MaxPayload = 256 << 10 // bytes of one payload, as JSON
	MaxKind    = 256       // bytes of a kind
)

// NoRetries as Options.Retries asks for a single attempt. Waiting for a busy
// resource is not an attempt, so such a task may still wait.
const NoRetries = -1

// Options say when, where and how often a task runs. The zero value is ready
// to use. Durations that asynq would round away (it keeps whole seconds) are
// refused.
type Options struct {
	// Queue is the queue's name, 1 to 256 bytes of UTF-8. Not in it: control characters, blanks
	// at an end, and {}/?#%\, which mean something in keys or URLs; nor is it . or .. alone.
	// Defaults to "default".
	Queue string
	// TaskID, to which the same applies, makes the task known under this id; while a task of this id
	// exists in the queue, another is refused with [ErrTaskIDConflict]. Of a queue
	// with shards, in the same shard only, which tasks of one resource share.
	// Defaults to a random UUID.
	TaskID string
	// Delay runs the task this long from now; At at this time. At most one of
	// the two. A time in the past means now.
	Delay time.Duration
	At    time.Time
	// UniqueFor refuses, with [ErrDuplicate], a second task of the same kind,
	// payload and queue while the first is unfinished, for at least this long;
	// whole seconds. Waiting for a resource prolongs it.
	UniqueFor time.Duration
	// Retries is how often the task is tried again after its own failures.
	// 0 means the default of 25; [NoRetries] means none.
	Retries int
	// Timeout ends one attempt; whole seconds. Defaults to 30 minutes, unless
	// Deadline is set.
	Timeout time.Duration
	// Deadline is when the task is given up. If it passes while the task waits, the task is
	// archived, with no retry charged, and its last error says for what it waited.
	Deadline time.Time
	// Retention keeps a succeeded task for inspection; whole seconds.
	// Defaults to 0: it is deleted at once.
	Retention time.Duration
}

// A Receipt names an accepted task.
type Receipt struct {
	ID    string `json:"id"`
	Queue string `json:"queue"` // asynq's, which is a shard where the queue has shards
}

// Errors of a refused task, to branch on with errors.Is.
var (
	// ErrDuplicate refuses a task whose like is still unfinished (UniqueFor).
	ErrDuplicate = errors.New("queue: a task of this kind and payload exists already")
	// ErrTaskIDConflict refuses a task whose id is taken.
	ErrTaskIDConflict = errors.New("queue: a task of this id exists already")
)

// A TaskError says which field of a task is not acceptable, and why. No retry
// can mend it.
type TaskError struct {
	Kind  string // the task's kind
	Field string // the field of the payload or of Options, such as "resource" or "timeout"
	Value string // the value as text, shortened; empty where it is not known or not to be shown
	Want  string // what is wanted instead
}

// Error reads like: order:audit: payload field "order" is empty.
func (e *TaskError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s: %s", e.Kind, e.Field, e.Want)
	}
	return fmt.Sprintf("%s: %s: %s, have %q", e.Kind, e.Field, e.Want, e.Value)
}

// Info describes the running attempt to its handler; see [InfoFrom].
type Info struct {
	ID       string // the task's id, the same for all its attempts
	Queue    string // asynq's, as in [Receipt]
	Kind     string
	Resource string // what the attempt holds the lock of; empty when unguarded
	Retried  int    // how often its own failures have sent it back so far
	Retries  int    // how often they may
}

type infoKey struct{}

// InfoFrom returns what is known of the attempt under which ctx runs; the zero
// Info outside one.
func InfoFrom(ctx context.Context) Info {
	info, _ := ctx.Value(infoKey{}).(Info)
	return info
}

// WithInfo returns a context that carries info. Handlers get theirs from the
// server; tests may make their own.
func WithInfo(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, info)
}

// encode checks t and returns its payload and resource ("" when unguarded).
func encode(t Task) (payload []byte, resource string, err error) {
	kind := t.Kind()
	if strings.TrimSpace(kind) == "" || len(kind) > MaxKind {
		return nil, "", &TaskError{Kind: fmt.Sprintf("%T", t), Field: "kind", Value: clip(kind), Want: fmt.Sprintf("want 1 to %d bytes", MaxKind)}
	}
	if v, ok := t.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, "", err
		}
	}
	if payload, err = json.Marshal(t); err != nil {
		return nil, "", fmt.Errorf("%s: payload: %w", kind, err)
	}
	if len(payload) > MaxPayload {
		return nil, "", &TaskError{Kind: kind, Field: "payload", Want: fmt.Sprintf("want at most %d bytes, have %d", MaxPayload, len(payload))}
	}
	if g, ok := t.(Guarded); ok {
		resource = g.Resource()
	}
	return payload, resource, nil
}

// clip shortens a value for an error text.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
