package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A logEvery passes on one message of a kind per interval, so that a Redis which is
// away for hours does not fill a disk. The next one says how many were left out.
type logEvery struct {
	mu    sync.Mutex
	kinds map[string]*kindOfMessage
}

type kindOfMessage struct {
	next    time.Time // the next one may be logged from then on
	leftOut int
}

const (
	logInterval = 10 * time.Second
	// maxKinds bounds what is remembered of messages with an endless number of kinds.
	maxKinds = 1000
)

// allow reports whether a message of this kind is to be logged, and how many were
// not since the last one.
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
	leftOut, k.leftOut, k.next = k.leftOut, 0, now.Add(logInterval)
	return true, leftOut
}

// log logs a message, one of its kind per interval, with log's attributes and these.
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

// fault logs what Redis did not do.
func (l *logEvery) fault(ctx context.Context, log *slog.Logger, text string, err error) {
	l.log(ctx, log, slog.LevelWarn, text, text, "error", err)
}

// asynqLogger passes asynq's messages on; of warnings and errors of one kind, which
// come with every tick of its clocks while Redis is away, one per interval. They name
// tasks by id and hold no payloads.
type asynqLogger struct {
	logger *slog.Logger
	every  *logEvery
}

func (l asynqLogger) log(level slog.Level, args []any) {
	text := fmt.Sprint(args...)
	if level < slog.LevelWarn {
		l.logger.Log(context.Background(), level, "asynq", "message", text)
		return
	}
	l.every.log(context.Background(), l.logger, level, kindOf(text), "asynq", "message", text)
}

// kindOf is a message up to what differs from one of its kind to the next.
func kindOf(text string) string {
	if i := strings.IndexAny(text, ":=[\""); i >= 0 {
		return text[:i]
	}
	return text
}

func (l asynqLogger) Debug(args ...any) { l.log(slog.LevelDebug, args) }

// Info is asynq's for what it does at start and stop, of interest to few.
func (l asynqLogger) Info(args ...any) { l.log(slog.LevelDebug, args) }

// Warn passes on all but one: asynq says of each error on a task's last attempt
// that its retries are exhausted, also when the task is then only put aside.
func (l asynqLogger) Warn(args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(fmt.Sprint(args...), "Retry exhausted") {
		level = slog.LevelDebug
	}
	l.log(level, args)
}

func (l asynqLogger) Error(args ...any) { l.log(slog.LevelError, args) }

// Fatal does not end the process, which is not a library's to decide.
func (l asynqLogger) Fatal(args ...any) { l.log(slog.LevelError, args) }
