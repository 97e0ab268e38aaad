package asynqhandler

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestThisAsynq is what a new version of asynq has to pass before it is known.
func TestThisAsynq(t *testing.T) {
	t.Parallel()
	version := asynqVersion()
	expect.That(t, version != "" && isKnown(version), "want one of the versions %v, have %q", known, version)
	if _, err := newLayout(version); err != nil {
		t.Error(err)
	}
}

func TestIsKnown(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"":                                      true, // as a copy of asynq may be
		"v0.26.0":                               true,
		"v0.26.3":                               true,
		"v0.26.1-0.20261103071544-7dd9d4b2a3c1": true,
		"v0.25.1":                               false,
		"v0.27.0":                               false,
		"v0.260.0":                              false,
		"v1.0.0":                                false,
	} {
		have := isKnown(version)
		expect.That(t, have == want, "%q: want %t, have %t", version, want, have)
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := newLayout("v0.27.0")
	const want = "asynqhandler: asynq v0.27.0: is not a version that was tried: use a version that this package knows (v0.26.x)"
	expect.That(t, err != nil && err.Error() == want, "want %s, have %v", want, err)
}

// A field that has gone, has another type, or has moved into an embedded struct is found before memory
// is touched.
func TestOffsetOf(t *testing.T) {
	t.Parallel()
	type inner struct{ Deep string }
	type outer struct {
		Number int
		Text   string
		inner
	}
	in, text := reflect.TypeFor[outer](), reflect.TypeFor[string]()
	if offset, err := offsetOf(in, "Text", text); err != nil || offset != reflect.TypeFor[int]().Size() {
		t.Errorf("want the offset of Text, have %d: %v", offset, err)
	}
	for _, name := range []string{"Number", "Gone", "Deep"} {
		_, err := offsetOf(in, name, text)
		want := "asynqhandler.outer has no field " + name + " of type string"
		expect.That(t, err != nil && err.Error() == want, "%s: want %s, have %v", name, want, err)
	}
}

// Fields of the same type that have changed their meaning are found by the task that is tried.
func TestTryFindsChangedMeanings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*layout){
		"retries":           func(l *layout) { l.messageRetry, l.messageRetried = l.messageRetried, l.messageRetry },
		"names":             func(l *layout) { l.messageID, l.messageQueue = l.messageQueue, l.messageID },
		"names of writer":   func(l *layout) { l.writerID, l.writerQueue = l.writerQueue, l.writerID },
		"key":               func(l *layout) { l.key = "another" },
		"message of nobody": func(l *layout) { l.message = nil },
	} {
		l := expect.Value(newLayout(asynqVersion()))(t)
		change(l)
		if err := l.try(); err == nil {
			t.Errorf("%s: want an error, have none", name)
		}
	}
}

// An asynq that keeps results by another call must not have it run on Redis.
func TestOnlyResultsAreSet(t *testing.T) {
	t.Parallel()
	m := &taskredis.Message{ID: "id", Queue: "queue"}
	kept := 0
	c := &resultClient{task: m, write: func([]byte) error { kept++; return nil }}
	key := taskredis.TaskKey("queue", "id")
	if err := c.HSet(t.Context(), key, "result", []byte("r")).Err(); err != nil || kept != 1 {
		t.Errorf("want the result kept, have %d kept: %v", kept, err)
	}
	for name, call := range map[string]struct {
		key    string
		values []any
	}{
		"another key":   {taskredis.TaskKey("queue", "other"), []any{"result", []byte("r")}},
		"another field": {key, []any{"state", []byte("r")}},
		"more fields":   {key, []any{"result", []byte("r"), "state", "active"}},
		"another type":  {key, []any{"result", "r"}},
	} {
		if err := c.HSet(t.Context(), call.key, call.values...).Err(); err == nil || !strings.HasPrefix(err.Error(), "asynqhandler: ") {
			t.Errorf("%s: want an error of this package, have %v", name, err)
		}
	}
	expect.That(t, kept == 1, "want 1 result kept, have %d", kept)
}

// asynq keeps results without a context. Ours are kept with the attempt's, and so for no longer than it runs.
func TestResultsHaveTheContext(t *testing.T) {
	t.Parallel()
	l := expect.Value(newLayout(asynqVersion()))(t)
	h := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte("r"))
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := l.process(ctx, h, &taskredis.Message{ID: "id", Queue: "queue"}, func(have context.Context, _ []byte) error {
		cancel()
		return have.Err()
	})
	expect.That(t, errors.Is(err, context.Canceled), "want the attempt's context, have one that ends with %v", err)
}
