package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// held has a server hold the lines of tasks that fail, and retry them after a minute.
func held(how OnFailure, fails func(*Task) error) func(*Config) {
	return func(cfg *Config) {
		next := cfg.Handler
		cfg.OnFailure = func(*taskredis.Message) OnFailure { return how }
		cfg.RetryDelay = func(int, error, *asynq.Task) time.Duration { return time.Minute }
		cfg.Handler = func(ctx context.Context, t *Task) error {
			if err := next(ctx, t); err != nil {
				return err
			}
			return fails(t)
		}
	}
}

// failsBy has tasks fail as often as their ids say: that of a-xx-7 does so twice.
func failsBy(t *Task) error {
	if t.Retried < strings.Count(t.ID, "x") {
		return errors.New("own failure")
	}
	return nil
}

// watch notes in which order handlers begin.
func (i *island) watch(order *[]string) func(*Config) {
	return func(cfg *Config) {
		next := cfg.Handler
		cfg.Handler = func(ctx context.Context, t *Task) error {
			i.mu.Lock()
			*order = append(*order, t.ID)
			i.mu.Unlock()
			return next(ctx, t)
		}
	}
}

// seen returns what a watch has noted until now.
func (i *island) seen(order *[]string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(*order)
}

// state returns the state of a task.
func (i *island) state(id string) string {
	return i.HGet(i.t.Context(), taskredis.TaskKey("q", id), "state").Val()
}

// A line that is held, or has stopped, goes on when its first task has run, is given up, or is gone, and not before.
func TestHeldLineGoesOn(t *testing.T) {
	t.Parallel()
	const gone, soon = 11 * time.Second, 3 * time.Second
	for name, c := range map[string]struct {
		how     OnFailure
		retries int
		do      func(*asynq.Inspector) error
		after   time.Duration // then the one behind it has run
		runs    int           // of the first
		state   string        // of the first, '' if it is gone
	}{
		"hold, left alone":         {how: Hold, retries: 1, after: time.Minute, runs: 2, state: "archived"},
		"hold, run before":         {how: Hold, retries: 1, do: func(i *asynq.Inspector) error { return i.RunTask("q", "x-first") }, after: soon, runs: 2, state: "archived"},
		"hold, deleted":            {how: Hold, retries: 1, do: func(i *asynq.Inspector) error { return i.DeleteTask("q", "x-first") }, after: gone, runs: 1},
		"hold, archived":           {how: Hold, retries: 1, do: func(i *asynq.Inspector) error { return i.ArchiveTask("q", "x-first") }, after: gone, runs: 1, state: "archived"},
		"stop, left alone":         {how: Stop, retries: 0, runs: 1, state: "archived"},
		"stop, deleted":            {how: Stop, retries: 0, do: func(i *asynq.Inspector) error { return i.DeleteTask("q", "x-first") }, after: gone, runs: 1},
		"stop, run, fails again":   {how: Stop, retries: 0, do: func(i *asynq.Inspector) error { return i.RunTask("q", "x-first") }, runs: 2, state: "archived"},
		"stop after its retries":   {how: Stop, retries: 1, runs: 2, state: "archived"},
		"overtake, while it waits": {how: Overtake, retries: 1, after: soon, runs: 1, state: "retry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onIsland(t, func(i *island) {
				i.add("x-first", "a")
				m := taskredis.Message{Type: "kind", ID: "x-first", Queue: "q", Retry: c.retries, Timeout: 60}
				i.HSet(i.t.Context(), taskredis.TaskKey("q", "x-first"), "msg", m.Encode())
				i.add("second", "a")
				i.serve(always(time.Second), held(c.how, func(t *Task) error {
					if t.ID == "x-first" {
						return errors.New("own failure")
					}
					return nil
				}))
				time.Sleep(5 * time.Second)
				if have := i.runs("second"); c.how != Overtake && have > 0 {
					t.Error("want the second to wait")
				}
				if c.do != nil {
					if err := c.do(asynq.NewInspectorFromRedisClient(i.Client)); err != nil {
						t.Error(err)
					}
				}
				if c.after == 0 {
					time.Sleep(4 * time.Minute)
					if have := i.runs("second"); have > 0 {
						t.Errorf("want the second to wait for ever")
					}
				} else {
					time.Sleep(c.after)
					if have := i.runs("second"); have != 1 {
						t.Errorf("want the second to have run after %v, have %d runs", c.after, have)
					}
				}
				if have := i.runs("x-first"); have != c.runs {
					t.Errorf("want %d runs of the first, have %d", c.runs, have)
				}
				if have := i.state("x-first"); have != c.state {
					t.Errorf("want the first %s, have %s", c.state, have)
				}
			})
		})
	}
}

// A task that holds its line, and that somebody has run, waits behind all that is pending. Its line does so, too.
func TestHeldLineWaitsForATaskThatIsPending(t *testing.T) {
	t.Parallel()
	onIsland(t, func(i *island) {
		var order []string
		i.serve(always(time.Second), i.watch(&order), held(Hold, failsBy), slots(1))
		i.add("x-first", "a")
		i.add("second", "a")
		time.Sleep(5 * time.Second)
		for n := range 30 {
			i.add(fmt.Sprint("other-", n), "")
		}
		if err := asynq.NewInspectorFromRedisClient(i.Client).RunTask("q", "x-first"); err != nil {
			t.Error(err)
		}
		i.add("third", "a")
		time.Sleep(time.Minute)
		have := slices.DeleteFunc(i.seen(&order), func(id string) bool { return strings.HasPrefix(id, "other") })
		want := []string{"x-first", "x-first", "second", "third"}
		expect.That(t, slices.Equal(have, want), "want %v, have %v", want, have)
	})
}

// One with a higher priority, which is before a task that holds its line, need not wait for it: also if upkeep has ended that.
func TestHeldLineLetsAHigherPriorityGoFirst(t *testing.T) {
	t.Parallel()
	onIsland(t, func(i *island) {
		i.add("x-first", "a")
		kill := i.serve(always(time.Hour), held(Hold, failsBy), func(cfg *Config) { cfg.Crashes = 0 })
		time.Sleep(3 * time.Second)
		i.HSet(i.t.Context(), taskredis.TaskKey("q", "high"), "siding_priority", "3")
		i.add("high", "a")
		time.Sleep(time.Second)
		kill()
		i.serve(always(time.Second), held(Hold, failsBy), func(cfg *Config) { cfg.Crashes = 0 })
		for i.state("x-first") == "active" {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		have := i.runs("high")
		expect.That(t, have == 1, "want the task of a higher priority to have run, have %d runs", have)
	})
}
