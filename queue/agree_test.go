package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// Beside a live server of its queue a server starts that has the same locks, or is told not to mind. What else differs is one
// warning, that names the other server and both values.
func TestServersAgree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{Limits: map[string]queue.Limit{"a:*": {Holders: 2}}}, b.run)
	start := func(cfg queue.ServerConfig) (warned []string, _ error) {
		t.Helper()
		logs := newLogs(t)
		cfg.Logger = logs.logger
		server := b.newJobServer(cfg)
		err := server.Start(t.Context())
		shutdown(t, server)
		return logs.lines("has other settings"), err
	}
	same := queue.ServerConfig{
		Limits:   map[string]queue.Limit{"a:*": {Holders: 2}},
		Policies: map[string]queue.Policy{"mail": {OnBusy: queue.OnBusyPark, OnFailure: queue.OnFailureOvertake}}, // as without
	}
	other := same
	other.Lock.Prefix = "other:"
	expect.Eventually(t, "the first server to be known", func() bool {
		_, err := start(other)
		return errors.Is(err, queue.ErrOtherLocks) && strings.Contains(err.Error(), `has the lock.prefix "lock:", and `) && strings.Contains(err.Error(), `which is to start, has "other:"; `)
	})
	warned, err := start(same)
	expect.That(t, err == nil && len(warned) == 0, "the same settings: want no warning, have %v and %q", err, warned)
	elsewhere := queue.ServerConfig{Store: locktest.NewMemory()}
	if _, err := start(elsewhere); !errors.Is(err, queue.ErrOtherLocks) || !strings.Contains(err.Error(), "has the store the Redis of the tasks, and ") {
		t.Errorf("another store: want ErrOtherLocks, have %v", err)
	}
	expect.That(t, len(b.servers()) == 1, "want the one that runs alone in the list of servers, have %v", b.servers())
	other.AllowOtherLocks = true
	if warned, err := start(other); err != nil || len(warned) != 1 || !strings.Contains(warned[0], "lock.prefix") {
		t.Errorf("as told: want one warning, have %v and %q", err, warned)
	}
	rules := queue.ServerConfig{Lock: lock.Config{TTL: 20 * time.Second}, Policies: map[string]queue.Policy{"mail": {OnBusy: queue.OnBusyReject}}}
	if warned, err := start(rules); err != nil || len(warned) != 1 || !strings.Contains(warned[0], "lock.ttl: 20s here, 15s there") ||
		!strings.Contains(warned[0], "limits: a:*: none here, 2 there") || !strings.Contains(warned[0], "policies: mail: ") {
		t.Errorf("other rules: want one warning of all three, have %v and %q", err, warned)
	}
}

// Of two servers that start at the same moment one at least sees the other.
func TestServersAgreeAtTheSameMoment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var servers []*queue.Server
	for _, prefix := range []string{"a:", "b:"} {
		server := b.newJobServer(queue.ServerConfig{Lock: lock.Config{Prefix: prefix}})
		t.Cleanup(func() { shutdown(t, server) })
		servers = append(servers, server)
	}
	errs := make(chan error, 2)
	for _, s := range servers {
		go func() { errs <- s.Start(t.Context()) }()
	}
	one, two := <-errs, <-errs
	expect.That(t, errors.Is(one, queue.ErrOtherLocks) || errors.Is(two, queue.ErrOtherLocks), "want one refused at least, have %v and %v", one, two)
}

// servers returns the names of the servers that asynq lists.
func (b *bundle) servers() (names []string) {
	b.Helper()
	all := expect.Value(asynq.NewInspectorFromRedisClient(b.rdb).Servers())(b)
	for _, s := range all {
		if _, serves := s.Queues[b.queue]; serves {
			names = append(names, s.ID)
		}
	}
	return names
}

// A deploy changes which locks tasks need, while many wait for those that they needed before. Each starts soon after the
// one before it, as without the change: none waits until somebody looks again, every 5 s, or a lock has ended.
func TestDeployChangesTheLocks(t *testing.T) {
	t.Parallel()
	const tasks, takes = 60, 10 * time.Millisecond
	const longest = 4 * time.Second // which a busy machine does not need
	by := func(name func(j job) string) map[string]queue.ResourceFunc {
		return resourcesBy(func(j job) (string, error) { return name(j), nil })
	}
	guarded := queue.ServerConfig{Resources: resources()}
	elsewhere := func() queue.ServerConfig {
		return queue.ServerConfig{Resources: resources(), Store: locktest.NewMemory()}
	}
	type row struct{ before, after queue.ServerConfig }
	eachOf(t, onBoth, map[string]row{
		"nothing":          {guarded, guarded},
		"another resource": {guarded, queue.ServerConfig{Resources: by(func(j job) string { return j.Res + ".new" })}},
		"several":          {guarded, queue.ServerConfig{Resources: by(func(j job) string { return fmt.Sprint(j.Res, ".", j.N%3) })}},
		"another prefix":   {guarded, queue.ServerConfig{Resources: resources(), Lock: lock.Config{Prefix: "new:"}}},
		"to a store":       {guarded, elsewhere()},
		"from a store":     {elsewhere(), guarded},
		"no guard":         {guarded, queue.ServerConfig{}},
	}, func(b *bundle, deploy row) {
		b.unfenced = true // they have other locks by then
		held := b.hold(0)
		old := &plain{guardConfig: deploy.before}
		old.serve(b)
		ids := []string{b.enqueuePlain(b.job(0))}
		within(b, patience, "the holder", held.entered)
		for n := 1; n < tasks; n++ {
			ids = append(ids, b.enqueuePlain(b.job(n)))
		}
		expect.Eventually(b, "all others waiting", func() bool { return b.stats().Retry == tasks-1 })
		old.server.Stop()
		held.open()
		old.stop(b)

		started := make(chan struct{}, tasks)
		p := &plain{guardConfig: deploy.after}
		p.start(b, handlerOf(func(ctx context.Context, _ job) error {
			started <- struct{}{}
			return sleep.For(ctx, takes)
		}))
		for range tasks - 1 { // the first was held
			within(b, longest, "the next task", started)
		}
		b.awaitGone(ids...)
		b.wantCounts(tasks, 0)
	})
}
