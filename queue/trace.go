package queue

import (
	"context"
	"fmt"
	"regexp"
)

// traceparent is what https://www.w3.org/TR/trace-context/#traceparent-header allows in version 00.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// SetTraceparent says under which trace the handler of ctx runs, as a traceparent of the W3C. The task
// that gets the lock next learns it as [Event.ReleasedBy], also in another process. That costs no call.
// SetTraceparent does nothing outside of the handler of a guarded task. Its error says that value is no
// traceparent.
func SetTraceparent(ctx context.Context, value string) error {
	if !traceparent.MatchString(value) {
		return fmt.Errorf("queue: traceparent: want a text like 00-<32 hex digits>-<16 hex digits>-01, have %q", clip(value))
	}
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		r.queued.SetTrace(value)
	}
	return nil
}
