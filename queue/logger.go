package queue

import (
	"cmp"
	"context"
	"log/slog"
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

// log logs a message if allow says so.
func (l *logEvery) log(ctx context.Context, log *slog.Logger, level slog.Level, kind, text string, attrs ...any) {
	ok, leftOut := l.allow(kind)
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, "left_out", leftOut)
	}
	log.Log(ctx, level, text, attrs...) //nolint:sloglint // its callers' are constants
}

// fault logs a failed call to Redis.
func (l *logEvery) fault(ctx context.Context, log *slog.Logger, text string, err error) {
	l.log(ctx, log, slog.LevelWarn, text, text, "error", err)
}

// fault logs that a call has failed, unless err is nil or ctx has ended.
func (s *Server) fault(ctx context.Context, text string, err error) {
	if err != nil && ctx.Err() == nil {
		s.faults.fault(ctx, s.cfg.Logger, text, err)
	}
}
