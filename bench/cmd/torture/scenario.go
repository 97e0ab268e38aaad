package main

import (
	"context"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
)

const (
	// away is for how long a worker stands still or is cut off: longer than the TTL.
	away = 12 * time.Second
	// down is for how long the server is down.
	down = 2 * time.Second
)

// A scenario is what happens to a trial while its workers are busy, on the same timeline for all.
type scenario struct {
	contest.Entry

	events []event
}

// An event does something at a time after the first task has started.
type event struct {
	at time.Duration
	do func(*trial, context.Context) error
}

func scenarios() []scenario {
	terminate := func(slot int) func(*trial, context.Context) error {
		return func(t *trial, ctx context.Context) error { return t.terminate(ctx, slot) }
	}
	return []scenario{
		{contest.Entry{Name: "calm", About: "nothing happens"}, nil},
		{contest.Entry{Name: "kill9", About: "SIGKILL to a worker with a task after 3 s and after 5 s; each is replaced at once"}, []event{
			{3 * time.Second, (*trial).kill},
			{5 * time.Second, (*trial).kill},
		}},
		{contest.Entry{Name: "stop", About: "SIGSTOP to a worker with a task after 3 s, SIGCONT 12 s later"}, []event{
			{3 * time.Second, (*trial).pause},
			{3*time.Second + away, (*trial).resume},
		}},
		{contest.Entry{Name: "term", About: "SIGTERM to each worker, 1.5 s apart; its replacement starts at the same time"}, []event{
			{3 * time.Second, terminate(0)},
			{4500 * time.Millisecond, terminate(1)},
			{6 * time.Second, terminate(2)},
		}},
		{contest.Entry{Name: "restart", About: "the server (Redis, or PostgreSQL) is shut down after 3 s, for 2 s; it keeps its data"}, []event{
			{3 * time.Second, (*trial).shutDown},
			{3*time.Second + down, func(t *trial, ctx context.Context) error { return t.server.Start(ctx) }},
		}},
		{contest.Entry{Name: "cut", About: "the connections of a worker with a task are cut after 3 s, and new ones refused for 12 s"}, []event{
			{3 * time.Second, (*trial).cut},
			{3*time.Second + away, (*trial).mend},
		}},
	}
}
