package queue

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// A logEvery logs one message of a kind per interval, so that hours without Redis do not fill a disk.
type logEvery struct {
	interval time.Duration // 0 means logInterval
	mu       sync.Mutex
	next     map[string]time.Time // when the next one of a kind may be logged
}

const (
	logInterval = 10 * time.Second
	// maxKinds bounds the memory for kinds.
	maxKinds = 1000
)

// allow reports whether a message of this kind may be logged now.
func (l *logEvery) allow(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next[kind]) {
		return false
	}
	if l.next == nil || len(l.next) > maxKinds {
		l.next = make(map[string]time.Time)
	}
	l.next[kind] = now.Add(cmp.Or(l.interval, logInterval))
	return true
}

// fault logs that a call to Redis has failed, unless err is nil or ctx has ended.
func (s *Server) fault(ctx context.Context, text string, err error) {
	if err != nil && ctx.Err() == nil && s.faults.allow(text) {
		s.cfg.Logger.WarnContext(ctx, text, "error", err) //nolint:sloglint // its callers' are constants
	}
}
