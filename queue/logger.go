package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// fault logs that background work has failed, unless err is nil or ctx has ended.
func (g *Guard) fault(ctx context.Context, text string, err error) {
	if err != nil && ctx.Err() == nil {
		g.faults.fault(ctx, g.cfg.Logger, text, err)
	}
}

// An asynqLogger logs asynq's messages, which have no payloads. It logs one warning or error of a
// kind per interval. asynq repeats them every few seconds while Redis does not answer.
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

// kindOf returns the part of a message that all of its kind share.
func kindOf(text string) string {
	if i := strings.IndexAny(text, ":=[\""); i >= 0 {
		return text[:i]
	}
	return text
}

func (l asynqLogger) Debug(args ...any) { l.log(slog.LevelDebug, args) }

// Info logs what asynq says at its start and stop, at the level debug.
func (l asynqLogger) Info(args ...any) { l.log(slog.LevelDebug, args) }

// Warn logs warnings. That a task's retries are exhausted is logged at the level debug. asynq says
// so of every error on a last attempt, also of a task that is then parked.
func (l asynqLogger) Warn(args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(fmt.Sprint(args...), "Retry exhausted") {
		level = slog.LevelDebug
	}
	l.log(level, args)
}

func (l asynqLogger) Error(args ...any) { l.log(slog.LevelError, args) }

// Fatal does not end the process, as a library must not decide that.
func (l asynqLogger) Fatal(args ...any) { l.log(slog.LevelError, args) }
