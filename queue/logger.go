package queue

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// A logEvery logs one message of a kind per interval, so that hours without Redis do not fill a
// disk. The next message of that kind says how many were left out.
type logEvery struct {
	interval time.Duration // 0 means logInterval
	mu       sync.Mutex
	kinds    map[string]*kindOfMessage
}

type kindOfMessage struct {
	next    time.Time // when the next one may be logged
	leftOut int
}

const (
	logInterval = 10 * time.Second
	// maxKinds bounds the memory for kinds.
	maxKinds = 1000
)

// allow reports whether a message of this kind may be logged now, and how many were left out since
// the last.
func (l *logEvery) allow(kind string) (ok bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil || len(l.kinds) > maxKinds {
		l.kinds = make(map[string]*kindOfMessage)
	}
	k, now := l.kinds[kind], time.Now()
	if k == nil {
		k = new(kindOfMessage)
		l.kinds[kind] = k
	}
	if now.Before(k.next) {
		k.leftOut++
		return false, 0
	}
	leftOut, k.leftOut, k.next = k.leftOut, 0, now.Add(cmp.Or(l.interval, logInterval))
	return true, leftOut
}

// fault logs that a call to Redis has failed, unless err is nil or ctx has ended.
func (s *Server) fault(ctx context.Context, text string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	ok, leftOut := s.faults.allow(text)
	if !ok {
		return
	}
	attrs := []any{"error", err}
	if leftOut > 0 {
		attrs = append(attrs, "left_out", leftOut)
	}
	s.cfg.Logger.WarnContext(ctx, text, attrs...) //nolint:sloglint // its callers' are constants
}
