package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/runstats"
	"github.com/sidingq/siding/queue"
)

// A worker tells how many tasks have run, while some do.
func TestTellsOfTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		m := &member{log: slog.New(slog.NewTextHandler(&log, nil)), stats: new(runstats.Collector), broken: make(chan error, 1)}
		ended := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			cause, _ := m.wait(ctx)
			ended <- cause
		}()
		told := func() int { return strings.Count(log.String(), `msg="tasks ran"`) }
		time.Sleep(time.Hour)
		if have := told(); have != 0 {
			t.Errorf("an idle worker: want nothing told, have %d lines", have)
		}
		for range 3 {
			m.stats.Observe(queue.Event{Kind: queue.EventReleased})
		}
		m.stats.Observe(queue.Event{Kind: queue.EventReleased, Err: errors.New("failed")})
		time.Sleep(time.Hour)
		if have := told(); have != 1 {
			t.Errorf("want one line, have %d", have)
		}
		wantTexts(t, log.String(), "tasks=4 succeeded=3 in=10s")
		why := errors.New("asked to end")
		cancel(why)
		if have := <-ended; !errors.Is(have, why) {
			t.Errorf("want the cause %v, have %v", why, have)
		}
	})
}
