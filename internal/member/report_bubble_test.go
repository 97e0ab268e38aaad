package member

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/queue"
)

// A worker reports how many tasks have run, while some do.
func TestReportsOfTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log proc.Output
		m := &Member{Server: queue.ServerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, web: &web{broken: make(chan error, 1)}}
		ended := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			cause, _ := m.wait(ctx)
			ended <- cause
		}()
		reports := func() int { return strings.Count(log.String(), `msg="tasks ran"`) }
		time.Sleep(time.Hour)
		if have := reports(); have != 0 {
			t.Errorf("an idle worker: want no report, have %d lines", have)
		}
		for range 3 {
			m.stats.Observe(queue.Event{Kind: queue.EventReleased})
		}
		m.stats.Observe(queue.Event{Kind: queue.EventReleased, Err: errors.New("failed")})
		time.Sleep(time.Hour)
		if have := reports(); have != 1 {
			t.Errorf("want one line, have %d", have)
		}
		if want := "tasks=4 succeeded=3 in_s=10"; !strings.Contains(log.String(), want) {
			t.Errorf("want %q, have %s", want, log.String())
		}
		why := errors.New("asked to end")
		cancel(why)
		if have := <-ended; !errors.Is(have, why) {
			t.Errorf("want the cause %v, have %v", why, have)
		}
	})
}
