package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// asynqLogger passes asynq's messages on. They name tasks by id and hold no
// payloads.
type asynqLogger struct{ logger *slog.Logger }

func (l asynqLogger) log(level slog.Level, args []any) {
	l.logger.Log(context.Background(), level, "asynq", "message", fmt.Sprint(args...))
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
