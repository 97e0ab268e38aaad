package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/queue"
)

const (
	// lookEvery is how often somebody who looks asks each question.
	lookEvery = time.Second
	// lookRounds is how often hand-offs are timed with questions, and how often without. Both take turns.
	lookRounds = 12
	// lookTasks is how many times as many hand-offs a round has as a chain.
	lookTasks = 6
)

// A question is what an operator asks.
type question struct {
	name string
	ask  func(context.Context) error
	took []time.Duration
}

// look times hand-offs while somebody asks questions about the waiting tasks, and while nobody does.
// One more resource is handed from task to task for that. The rounds take turns, so that what slows
// the machine down concerns both.
func (s *testbed) look(ctx context.Context) error {
	inspector, err := inspect.New(s.rdb, inspect.Config{})
	if err != nil {
		return err
	}
	pages, err := lockpage.New(lockpage.Config{Source: inspector, By: func(*http.Request) string { return "" }})
	if err != nil {
		return err
	}
	defer pages.EndWatching()
	ids, err := s.rdb.ZRange(ctx, retryKey, -1, -1).Result()
	if err != nil || len(ids) == 0 {
		return errors.Join(err, fmt.Errorf("want waiting tasks, have %d", len(ids)))
	}
	questions := s.questions(inspector, pages, ids[0])
	var took [2][]time.Duration // while nobody looks, and while somebody does
	for round := range 2 * lookRounds {
		looks := (round + 1) / 2 % 2 // 0 1 1 0 0 1 1 ...
		all, err := s.round(ctx, questions[:looks*len(questions)])
		if err != nil {
			return err
		}
		took[looks] = append(took[looks], all...)
	}
	for _, q := range questions {
		s.add("questions", q.name, "ms", report.MS(report.Percentile(q.took, 50)))
	}
	for _, looks := range []int{0, 1} {
		what := []string{"hand-offs while nobody asks", "hand-offs while somebody asks all that once a second"}[looks]
		s.results.AddPercentiles(s.name, what, "hand-off", took[looks])
		s.add(what, "hand-off mean", "ms", mean(took[looks]))
		if looks == 1 {
			s.addRatios(what, took[1], took[0])
			s.add(what, "mean", "times the others", mean(took[1])/mean(took[0]))
		}
	}
	return nil
}

func (s *testbed) questions(i *inspect.Inspector, pages http.Handler, task string) []*question {
	return []*question{
		{name: "list", ask: func(ctx context.Context) error {
			_, err := i.Held(ctx)
			return err
		}},
		{name: "show a resource", ask: func(ctx context.Context) error {
			_, _, err := i.Show(ctx, s.resource(0), 1, page)
			return err
		}},
		{name: "why does a task wait", ask: func(ctx context.Context) error {
			_, err := i.Why(ctx, "", task)
			return err
		}},
		{name: "top", ask: func(ctx context.Context) error {
			_, err := i.Top(ctx, page)
			return err
		}},
		{name: "page of locks", ask: func(ctx context.Context) error {
			answer := httptest.NewRecorder()
			pages.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, lockpage.RootPath, http.NoBody))
			if answer.Code != http.StatusOK {
				return fmt.Errorf("%s: status %d", lockpage.RootPath, answer.Code)
			}
			return nil
		}},
	}
}

// round returns how long the hand-offs of one resource take, while somebody asks the questions.
func (s *testbed) round(ctx context.Context, questions []*question) ([]time.Duration, error) {
	tasks := lookTasks * s.handOffs
	resource := s.prefix + "look"
	s.fleet.mu.Lock()
	s.fleet.passing[resource] = tasks
	s.fleet.mu.Unlock()
	over := make(chan struct{})
	var looking errgroup.Group
	if len(questions) > 0 {
		looking.Go(func() error { return ask(ctx, questions, over) })
	}
	before := s.fleet.done.Load()
	err := enqueue(ctx, s.rdb, tasks, func(n int) queue.Task { return job{On: resource, N: n} })
	if err == nil {
		err = s.reach(ctx, &s.fleet.done, int(before)+tasks)
	}
	close(over)
	if err := errors.Join(err, looking.Wait()); err != nil {
		return nil, err
	}
	var took []time.Duration
	for len(s.fleet.took) > 0 {
		took = append(took, <-s.fleet.took)
	}
	return took, nil
}

// ask asks all questions one after the other, again and again, until the round is over.
func ask(ctx context.Context, questions []*question, over <-chan struct{}) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		for _, q := range questions {
			began := time.Now()
			if err := q.ask(ctx); err != nil {
				return err
			}
			q.took = append(q.took, time.Since(began))
		}
		select {
		case <-every.C:
		case <-over:
			return nil
		}
	}
}

// mean is in ms.
func mean(all []time.Duration) float64 {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return report.MS(sum) / float64(max(1, len(all)))
}
