package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// An outage says in the log once that something does not work, and once that it works again, however often it is
// tried in between.
type outage struct {
	logger       *slog.Logger
	fails, works string // the two messages

	mu    sync.Mutex
	since time.Time // zero while all is well
}

// saw is told how a try went. After the end of ctx it says nothing.
func (o *outage) saw(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		o.logger.WarnContext(ctx, o.fails, "error", err) //nolint:sloglint // its callers' are constants
	case err == nil && !o.since.IsZero():
		o.logger.InfoContext(ctx, o.works, "after", time.Since(o.since).Round(time.Millisecond)) //nolint:sloglint // as above
		o.since = time.Time{}
	}
}
