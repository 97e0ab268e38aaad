package queue

import (
	"context"
	"fmt"
	"regexp"
)

// traceparent is what https://www.w3.org/TR/trace-context/#traceparent-header allows in version 00.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// SetTraceparent says under which trace the handler of ctx runs. value is a traceparent of the W3C, in
// version 00; otherwise the call fails. The task that gets the lock next finds it in
// [Event.ReleasedBy], also in another process. That costs no call to Redis. Outside of the handler of
// a guarded task SetTraceparent does nothing.
func SetTraceparent(ctx context.Context, value string) error {
	if !traceparent.MatchString(value) {
		return fmt.Errorf("queue: traceparent: want a text like 00-<32 hex digits>-<16 hex digits>-01, have %q", clip(value))
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.SetTrace(value)
	}
	return nil
}
