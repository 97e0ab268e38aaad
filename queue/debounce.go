package queue

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sidingq/siding/internal/store"
)

// debounced checks what o says of a debounce.
func (o Options) debounced(kind string) error {
	fail := func(field, want string, have any) error {
		return &TaskError{Kind: kind, Field: field, Want: want, Value: clip(fmt.Sprint(have))}
	}
	const none = "want none of a task with a debounce"
	switch {
	case o.Debounce == "" && o.MaxDelay != 0:
		return fail("max delay", "want none of a task without a debounce", o.MaxDelay)
	case o.Debounce == "":
		return nil
	// As with a resource, so that one can be the debounce of its tasks.
	case len(o.Debounce) > store.MaxResource || strings.ContainsRune(o.Debounce, utf8.RuneError) || strings.ContainsFunc(o.Debounce, unicode.IsControl):
		return fail("debounce", fmt.Sprintf("want at most %d bytes of UTF-8 without control characters", store.MaxResource), o.Debounce)
	case o.TaskID != "":
		return fail("task id", none, o.TaskID)
	case !o.At.IsZero():
		return fail("at", none, o.At.Format(time.RFC3339))
	case o.Unique:
		return fail("unique", none, o.Unique)
	case o.UniqueFor != 0:
		return fail("unique for", none, o.UniqueFor)
	case o.Delay < time.Second || o.Delay%time.Second != 0:
		return fail("delay", "want whole seconds, 1 or more, of a task with a debounce", o.Delay)
	case o.MaxDelay < o.Delay || o.MaxDelay%time.Second != 0:
		return fail("max delay", fmt.Sprintf("want whole seconds, no less than the delay of %v", o.Delay), o.MaxDelay)
	}
	return nil
}
