package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	// few is how many tasks wait in the case that others are compared with, at most
	// so many on each resource as there.
	few = 100
	// page is how many tasks the dashboard shows at once.
	page = 20
)

// measure parks the tasks on so many resources, in a Redis of their own, and
// measures everything.
func measure(ctx context.Context, o options, resources int) (r result, err error) {
	server, err := redistest.Run(ctx)
	if err != nil {
		return r, err
	}
	defer server.Stop()
	s, err := newTestbed(server.Addr, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r = result{Tasks: o.tasks, Resources: resources, TTL: o.ttl.String()}
	for _, step := range []struct {
		what string
		do   func(context.Context, *result) error
	}{
		{"few tasks", s.few},
		{"locks", func(ctx context.Context, r *result) error { return s.hold(ctx, r.Resources) }},
		{"tasks", s.park},
		{"restart", s.restart},
		{"dashboard", s.dashboard},
		{"waiting", s.idle},
		{"questions", s.look},
		{"hand-offs", s.many},
	} {
		_, _ = fmt.Fprintf(o.progress, "%s %d tasks on %d resources: %s\n", time.Now().Format(time.TimeOnly), r.Tasks, r.Resources, step.what)
		if err := step.do(ctx, &r); err != nil {
			return r, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r, nil
}

// few times hand-offs while few tasks wait.
func (s *testbed) few(ctx context.Context, r *result) error {
	resources := max(1, few/(r.Tasks/r.Resources))
	var all []time.Duration
	for round := 0; len(all) < s.handOffs; round++ {
		s.prefix = fmt.Sprintf("few:%d:", round)
		if err := s.hold(ctx, resources); err != nil {
			return err
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		if err := s.enqueue(ctx, few, resources); err != nil {
			return err
		}
		if err := s.allParked(ctx, few); err != nil {
			return err
		}
		took, err := s.chains(ctx, few, resources)
		if err != nil {
			return err
		}
		all = append(all, took...)
		if err := errors.Join(s.stop(ctx), s.clear(ctx)); err != nil {
			return err
		}
	}
	s.prefix = "many:"
	r.FewP50, r.FewP99 = report.MS(report.Percentile(all, 50)), report.MS(report.Percentile(all, 99))
	return nil
}

// park enqueues the tasks, has a server park them, and weighs them.
func (s *testbed) park(ctx context.Context, r *result) error {
	before, err := s.usedMemory(ctx)
	if err != nil {
		return err
	}
	cpu, start := s.cpu(ctx), time.Now()
	if err := s.enqueue(ctx, r.Tasks, r.Resources); err != nil {
		return err
	}
	r.EnqueueRate, r.EnqueueCPU = rate(r.Tasks, start), (s.cpu(ctx)-cpu)/float64(r.Tasks)
	if err := s.start(ctx); err != nil {
		return err
	}
	cpu, start = s.cpu(ctx), time.Now()
	if err := s.allParked(ctx, r.Tasks); err != nil {
		return err
	}
	r.ParkRate, r.ParkCPU = rate(r.Tasks, start), (s.cpu(ctx)-cpu)/float64(r.Tasks)
	if err := s.stop(ctx); err != nil {
		return err
	}
	after, err := s.usedMemory(ctx)
	r.Bytes = float64(after-before) / float64(r.Tasks)
	return err
}

// restart times the start of a server, until it has run a first task, or to the limit. It also
// times the server's end.
func (s *testbed) restart(ctx context.Context, r *result) error {
	start := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	r.Start = report.MS(time.Since(start))
	start = time.Now()
	if err := s.stop(ctx); err != nil {
		return err
	}
	r.Stop = report.MS(time.Since(start))
	return s.start(ctx)
}

// dashboard times its pages.
func (s *testbed) dashboard(ctx context.Context, r *result) error {
	h, err := dashboard.New(dashboard.Config{Redis: s.opts, AnyHost: true}) //nolint:contextcheck // its sampling ends with Close
	if err != nil {
		return err
	}
	last := (r.Tasks + page - 1) / page
	for _, p := range []struct {
		path string
		took *float64
	}{
		{"queues", &r.PageQueues},
		{"queues/default", &r.PageQueue},
		{fmt.Sprintf("queues/default/retry_tasks?page=1&size=%d", page), &r.PageFirst},
		{fmt.Sprintf("queues/default/retry_tasks?page=%d&size=%d", last, page), &r.PageLast},
	} {
		var took []time.Duration
		for range 5 {
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, dashboard.RootPath+"/api/"+p.path, http.NoBody)
			answer := httptest.NewRecorder()
			start := time.Now()
			h.ServeHTTP(answer, request)
			took = append(took, time.Since(start))
			if answer.Code != http.StatusOK {
				return errors.Join(fmt.Errorf("%s: status %d: %s", p.path, answer.Code, answer.Body), h.Close())
			}
		}
		*p.took = report.MS(report.Percentile(took, 50))
	}
	return h.Close()
}

// idle says what Redis is busy with while all wait: the renewals of the locks, and looks at them.
func (s *testbed) idle(ctx context.Context, r *result) error {
	cpu, start := s.cpu(ctx), time.Now()
	if err := sleep.For(ctx, s.watch); err != nil {
		return err
	}
	if s.watch > 0 {
		r.WatchLoad = (s.cpu(ctx) - cpu) / 1e6 / time.Since(start).Seconds()
	}
	return nil
}

// many times hand-offs while all the tasks wait.
func (s *testbed) many(ctx context.Context, r *result) error {
	cpu := s.cpu(ctx)
	took, err := s.chains(ctx, r.Tasks, r.Resources)
	if err != nil {
		return err
	}
	r.HandOffs = len(took)
	r.HandOffCPU = (s.cpu(ctx) - cpu) / float64(len(took))
	r.P50, r.P99 = report.MS(report.Percentile(took, 50)), report.MS(report.Percentile(took, 99))
	return s.stop(ctx)
}

// usedMemory returns how many bytes Redis has in use.
func (s *testbed) usedMemory(ctx context.Context) (int, error) { return usedMemory(ctx, s.rdb) }

func usedMemory(ctx context.Context, rdb redis.UniversalClient) (int, error) {
	info, err := rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(info["Memory"]["used_memory"])
}

// cpu returns how many microseconds of CPU time Redis has used, 0 when Redis does
// not tell. Rates computed from 0 are visibly wrong.
func (s *testbed) cpu(ctx context.Context) float64 { return cpuOf(ctx, s.rdb) }

func cpuOf(ctx context.Context, rdb redis.UniversalClient) float64 {
	info := rdb.InfoMap(ctx, "cpu").Val()["CPU"]
	user, _ := strconv.ParseFloat(info["used_cpu_user"], 64)
	system, _ := strconv.ParseFloat(info["used_cpu_sys"], 64)
	return (user + system) * 1e6
}

func rate(n int, since time.Time) float64 { return float64(n) / time.Since(since).Seconds() }
