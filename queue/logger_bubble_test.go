package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Redis is away for an hour. The log stays short, has every kind of message, and counts those that
// were left out.
func TestLogOfALongOutageIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		l := asynqLogger{log, new(logEvery)}
		var faults logEvery
		const ticks = 2 * 3600
		for i := range ticks {
			l.Error(fmt.Sprintf("Failed to forward scheduled tasks: try %d", i))
			l.Error(fmt.Sprintf("Failed to extend lease for tasks [%d]: refused", i))
			l.Warn(fmt.Sprintf("Could not move task id=%d", i))
			faults.fault(context.Background(), log.With("task_id", i), "a lock could not be asked for", errors.New("refused"))
			time.Sleep(time.Hour / ticks)
		}
		for _, kind := range []string{"forward scheduled", "extend lease", "Could not move", "could not be asked"} {
			if have := strings.Count(text.String(), kind); have != 360 {
				t.Errorf("%s: want it every 10 s for an hour, have it %d times", kind, have)
			}
		}
		if have := strings.Count(text.String(), "left_out=19\n"); have != 4*359 {
			t.Errorf("want the 19 between counted each time but the first, have it %d times", have)
		}
	})
}

// Messages that are no faults are all there, and kinds without end are not remembered.
func TestLogPassesOnTheRest(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	l := asynqLogger{slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), new(logEvery)}
	for i := range 5000 {
		l.Error(fmt.Sprintf("kind %d", i))
		l.Debug("all queues are empty")
	}
	if have := strings.Count(text.String(), "\n"); have != 10000 {
		t.Errorf("want all of 10000, have %d", have)
	}
	if have := len(l.every.kinds); have > maxKinds+1 {
		t.Errorf("want at most %d kinds remembered, have %d", maxKinds, have)
	}
}
