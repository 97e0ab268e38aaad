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
	fails, works string // the two messages; without the second one nothing is said when it works again

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
		if o.works != "" {
			o.logger.InfoContext(ctx, o.works, "after_s", time.Since(o.since).Round(time.Millisecond).Seconds()) //nolint:sloglint // as above
		}
		o.since = time.Time{}
	}
}

// Troubles say in the log what is wrong with keys in Redis, each thing once a minute at most.
type troubles struct {
	logger *slog.Logger
	said   map[string]time.Time // until when each is not said again
}

func (t *troubles) found(ctx context.Context, texts []string) {
	const every, most = time.Minute, 100
	now := time.Now()
	for _, text := range texts {
		if now.Before(t.said[text]) {
			continue
		}
		if t.said == nil || len(t.said) >= most {
			t.said = make(map[string]time.Time)
		}
		t.said[text] = now.Add(every)
		t.logger.WarnContext(ctx, "a key in Redis is not what it should be", "what", text)
	}
}
