package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
)

// A Task is a unit of work: a plain struct that is encoded as JSON. The kind is the name under
// which [Handle] registers the handler, such as "order:audit", of 1 to 256 bytes of UTF-8. Kind is
// also called on the zero value.
type Task interface {
	Kind() string
}

// A Guarded task never runs at the same time as another one on the same resource, such as
// "order:536365". A resource is 1 to 512 bytes of UTF-8 without control characters. Braces have to be in
// pairs, see lock.ErrResource. A task that needs no lock does not implement Guarded, and has no method Resource or Resources at all:
// [Handle] and a client refuse one whose method has another signature or a pointer as its receiver, as it would run without a lock.
type Guarded interface {
	Task
	Resource() string
}

// AllOf is the resource of a task that needs several at once, such as the two accounts of a transfer. The task runs once it has
// the locks of all of them, and holds none while it waits. The names may come in any order, and each counts once: at most 16. A
// header and a [ResourceFunc] may have what AllOf returns, too. Each lock has a fence of its own, see lock.Fence. Such a task has
// no [Policy] that compares tasks, and its queue has no shards. See docs/guides/several-resources.md for what is guaranteed, and
// in which order such tasks run.
func AllOf(resources ...string) string { return store.Join(resources...) }

// A Validator is a task that checks its own payload. A client refuses to enqueue a task that is not
// valid, with a [*TaskError] that wraps the error of Validate. A server archives one at once, as no
// retry can mend it.
type Validator interface {
	Validate() error
}

// MaxPayload is how many bytes a task's payload as JSON may have, together with its
// [Options.Headers]. A client refuses a larger task with a [*TaskError]. Redis keeps every byte in
// memory: store large documents elsewhere and enqueue their names.
const MaxPayload = 256 << 10

// maxKind is how many bytes a kind may have.
const maxKind = 256

// NoRetries as [Options.Retries] gives a task a single attempt. The task may still wait for its
// resource, which uses no retry.
const NoRetries = -1

// Options say when, where and how often a task runs. The zero value works. Durations must be whole
// seconds where asynq keeps no fractions.
type Options struct {
	// Queue is the name of the queue, 1 to 256 bytes of UTF-8. It has no control characters and no
	// blanks at an end, and is not . or .. alone. The characters {}/?#%\ are refused, as they mean
	// something in keys or URLs. Defaults to "default".
	Queue string
	// TaskID is the id of the task, under the same rules. While a task of this id exists in the
	// queue, another is refused with [ErrTaskIDConflict]. In a queue with shards that holds
	// within a shard, which tasks of one resource share. Defaults to a random UUID.
	TaskID string
	// Delay runs the task so long from now, At at that time. At most one of them is set. A time
	// in the past means now.
	Delay time.Duration
	At    time.Time
	// Unique refuses a second task of the same kind, payload and queue, with [ErrDuplicate], while
	// this one is unfinished: scheduled, pending, waiting, running or to be retried. It ends when the
	// task has succeeded, is archived or deleted. A task that is unfinished for a year is not unique
	// any more.
	Unique bool
	// UniqueFor refuses a second task of the same kind, payload and queue, with [ErrDuplicate], for
	// so long after this one was enqueued, or was to run by Delay or At, whatever becomes of it. A task
	// with Unique that asynq's tools have archived counts, too, for a year. At most one of Unique and
	// UniqueFor is set. Whole seconds.
	UniqueFor time.Duration
	// Debounce has the task replace the last one of the same kind, resource, queue and Debounce while
	// that waits for its Delay, so one task runs for a burst of them, with the payload that came last. It
	// is due Delay after that one came, but no later than MaxDelay after the first. From then on it is a
	// task like any other, and the next one begins anew. Both are whole seconds of Redis' clock, and
	// MaxDelay is no less than Delay; the times are rounded up. There is no TaskID, At, Unique or
	// UniqueFor beside it. Debounce is 1 to 512 bytes of UTF-8 without control characters.
	Debounce string
	MaxDelay time.Duration
	// Retries is how often the task is tried again after its own failures. 0 means the default
	// of 25, [NoRetries] means none.
	Retries int
	// Timeout ends the context of an attempt after so long. Whole seconds. Defaults to 30
	// minutes, unless Deadline is set.
	Timeout time.Duration
	// Deadline ends the context of an attempt. If the Deadline passes while the task waits for its
	// resource, the task is archived, and its last error says for what it waited. If it passes before
	// that, while the handler runs, or while the task waits to run again, for a retry or at the place where it
	// ran, that is a failure like others, as in asynq: no handler begins any more, but the task is archived only
	// when its Retries are used up, with their delays, and with Unique it refuses equal ones until then.
	Deadline time.Time
	// Priority is 0 to [MaxPriority]. Among those that wait for its resource a task comes before those that
	// came less than a minute before it and are one level lower; less than two minutes for two
	// levels; and so on. So each task comes nearer while it waits, and none waits for ever. Priority
	// concerns tasks that wait for one resource. Which of several queues goes first is a matter of
	// [ServerConfig].
	Priority int
	// Policy says what becomes of the task if its resource is busy. Nil means that of its kind in
	// [ServerConfig.Policies].
	Policy *Policy
	// Headers go with the task, such as those of a trace. The handler reads them by
	// [AsynqTask]. They are UTF-8. Names that begin with "siding-" are refused.
	Headers map[string]string
	// Retention is how long a task that has succeeded is kept, with its result. Whole seconds.
	// 0 means not at all.
	Retention time.Duration
}

// A Receipt names a task that was enqueued.
type Receipt struct {
	ID    string `json:"id"`
	Queue string `json:"queue"` // asynq's, which is a shard where the queue has shards
	// Replaced is the id of the task that this one has replaced, see [Options.Debounce]; "" for none.
	Replaced string `json:"replaced,omitempty"`
}

// Errors of a task that a client does not accept, for errors.Is.
var (
	// ErrDuplicate refuses a task of which there is an equal one, see [Options.Unique]. There is
	// nothing to do: the other one runs, or has run. It matches asynq.ErrDuplicateTask.
	ErrDuplicate error = existsError{"a task of this kind and payload exists already", asynq.ErrDuplicateTask}
	// ErrTaskIDConflict refuses a task whose id is taken, see [Options.TaskID]. After a call whose
	// answer was lost, it says that the task is there. It matches asynq.ErrTaskIDConflict.
	ErrTaskIDConflict error = existsError{"a task of this id exists already", asynq.ErrTaskIDConflict}
)

// An existsError refuses a task that is there already. It matches the error of asynq's client that says the same.
type existsError struct {
	text   string
	asynqs error
}

func (e existsError) Error() string        { return "queue: " + e.text }
func (e existsError) Is(target error) bool { return target == e.asynqs }

// A TaskError says which field of a task, or of its [Options], is not accepted, and why. No retry
// can mend it.
type TaskError struct {
	Kind  string // the task's kind
	Field string // the field of the payload or of Options, such as "resource" or "timeout"
	Value string // the value as text, shortened; empty if it is unknown or must not be shown
	Want  string // what is wanted instead
	Err   error  // the cause, such as the error of a Validator or lock.ErrResource; nil without one
}

// Error reads like: order:audit: payload field "order" is empty.
func (e *TaskError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s: %s", e.Kind, e.Field, e.Want)
	}
	return fmt.Sprintf("%s: %s: %s, have %q", e.Kind, e.Field, e.Want, e.Value)
}

// Unwrap returns the cause.
func (e *TaskError) Unwrap() error { return e.Err }

// Info describes the attempt under which a handler runs. [InfoFrom] returns it.
type Info struct {
	ID       string // the task's id, the same for all its attempts
	Queue    string // asynq's, as in [Receipt]
	Kind     string
	Resource string // whose lock the attempt holds, or several as [AllOf] has them; empty for an unguarded task
	Retried  int    // how many of its retries the task has used
	Retries  int    // how many it has in all
}

// InfoFrom returns the Info of the attempt under which ctx runs, the zero Info outside of one.
// Tests give handlers an Info by queuetest.WithInfo.
func InfoFrom(ctx context.Context) Info {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.info()
	}
	info, _ := ctx.Value(engine.InfoKey{}).(Info)
	return info
}

// AsynqTask returns asynq's task to a handler of [Handle], and nil outside of one. The task's
// ResultWriter keeps a result for [Options.Retention]. The task's Headers are those with which it
// was enqueued, and [HeaderResource].
func AsynqTask(ctx context.Context) *asynq.Task {
	t, _ := ctx.Value(engine.TaskKey{}).(*asynq.Task)
	return t
}

// badPayload returns the error about a payload that cannot be enqueued, a [*TaskError] in any case.
func badPayload(kind string, err error) error {
	if _, ok := errors.AsType[*TaskError](err); ok {
		return err
	}
	return &TaskError{Kind: kind, Field: "payload", Want: err.Error(), Err: err}
}

// null is the payload of a program that has marshaled a nil pointer. No handler of [Handle] gets it, so no client enqueues it.
const (
	null    = "null"
	notNull = "want a value, have null"
)

// encode checks t and returns its payload and its resource, "" if it is unguarded.
func encode(t Task) (payload []byte, resource string, err error) {
	if lockredis.None(t) {
		return nil, "", &TaskError{Kind: fmt.Sprintf("%T", t), Field: "task", Want: "want one that is not nil"}
	}
	if wrong := wrongMethod(reflect.TypeOf(t)); wrong != "" {
		return nil, "", &TaskError{Kind: fmt.Sprintf("%T", t), Field: "task", Want: wrong}
	}
	kind := t.Kind()
	if strings.TrimSpace(kind) == "" || len(kind) > maxKind || !utf8.ValidString(kind) {
		return nil, "", &TaskError{Kind: fmt.Sprintf("%T", t), Field: "kind", Value: clip(kind), Want: fmt.Sprintf("want 1 to %d bytes of UTF-8", maxKind)}
	}
	if v, ok := t.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, "", badPayload(kind, err)
		}
	}
	if payload, err = json.Marshal(t); err != nil {
		return nil, "", badPayload(kind, err)
	}
	if string(payload) == null { // such as a nil map
		return nil, "", &TaskError{Kind: kind, Field: "payload", Want: notNull}
	}
	if len(payload) > MaxPayload {
		return nil, "", &TaskError{Kind: kind, Field: "payload", Want: fmt.Sprintf("want at most %d bytes, have %d", MaxPayload, len(payload))}
	}
	if g, ok := t.(Guarded); ok {
		resource = g.Resource()
	}
	return payload, resource, nil
}

// wrongMethod says which method of a task's type is not quite that of an interface, and what is wanted; "" for none. Go would
// take the type for that of a task which needs no lock, or no check.
func wrongMethod(of reflect.Type) string {
	guarded, validator, pointer := reflect.TypeFor[Guarded](), reflect.TypeFor[Validator](), of
	if of.Kind() != reflect.Pointer {
		pointer = reflect.PointerTo(of)
	}
	onPointer := func(method string) string {
		return fmt.Sprintf("want %s as a method of %v, have it of %v", method, of, pointer)
	}
	_, resource := pointer.MethodByName("Resource")
	_, resources := pointer.MethodByName("Resources")
	switch {
	case !of.Implements(validator) && pointer.Implements(validator):
		return onPointer("Validate")
	case of.Implements(guarded):
		return ""
	case pointer.Implements(guarded):
		return onPointer("Resource")
	case resource || resources:
		return "want a method Resource that takes nothing and returns a string, such as queue.AllOf(a, b) for several"
	}
	return ""
}

// checkKind returns an error about a key of a setting for which no task comes. asynq's own clients take more kinds than
// a [Client] does. A limit has patterns, the other settings have none.
func checkKind(setting, kind string) error {
	switch {
	case strings.TrimSpace(kind) == "" || strings.Contains(kind, "\n"):
		return fmt.Errorf("queue: %s: want the kind of a task, have %q", setting, clip(kind))
	case strings.HasSuffix(kind, "*"):
		return fmt.Errorf("queue: %s: want the whole kind of a task, not a pattern, have %q", setting, clip(kind))
	}
	return nil
}

// clip shortens a value for an error text.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// maxName bounds the names of queues and ids of tasks, in bytes.
const maxName = 256

// notInNames are the characters that no name of a queue and no id of a task may have. Braces would
// end the hash tag of a Redis Cluster. The others have a meaning in URLs, such as those of the
// dashboard.
const notInNames = `{}/?#%\`

// wantName returns "" if a queue or a task may have this name. Otherwise it describes the names
// that are accepted, of at most so many bytes. A browser would change the URL of some others: it
// folds . and .. and cuts blanks at an end. U+FFFD is what decoders make of text that is not UTF-8, so two names could become one.
func wantName(name string, most int) string {
	if name != "" && len(name) <= most && name != "." && name != ".." && strings.TrimSpace(name) == name &&
		!strings.ContainsRune(name, utf8.RuneError) && !strings.ContainsAny(name, notInNames) && !strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return fmt.Sprintf("1 to %d bytes of UTF-8 without control characters, blanks at an end and %s, other than . and ..", most, notInNames)
}
