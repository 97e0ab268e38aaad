package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// Beside a live server of its queue a server starts that has the same locks, or is told not to mind. What else differs is one
// warning, that names the other server and both values.
func TestServersAgree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(t, queue.ServerConfig{Limits: map[string]queue.Limit{"a:*": {Holders: 2}}}, newStage(t).run)
	start := func(cfg queue.ServerConfig) (warned []string, _ error) {
		t.Helper()
		logs := newLogs(t)
		cfg.Logger = logs.logger
		server := b.newServer(t, cfg)
		queue.Handle(server, newStage(t).run)
		err := server.Start(t.Context())
		shutdown(t, server)
		return logs.lines("has other settings"), err
	}
	same := queue.ServerConfig{Limits: map[string]queue.Limit{"a:*": {Holders: 2}}}
	other := same
	other.Lock.Prefix = "other:"
	poll.Eventually(t, "the first server to be known", func() bool {
		_, err := start(other)
		return errors.Is(err, queue.ErrOtherLocks) && strings.Contains(err.Error(), `has the lock.prefix "lock:", and `) && strings.Contains(err.Error(), `which is to start, has "other:"; `)
	})
	if warned, err := start(same); err != nil || len(warned) != 0 {
		t.Errorf("the same settings: want no warning, have %v and %q", err, warned)
	}
	elsewhere := queue.ServerConfig{Store: locktest.NewMemory()}
	if _, err := start(elsewhere); !errors.Is(err, queue.ErrOtherLocks) || !strings.Contains(err.Error(), "has the store the Redis of the tasks, and ") {
		t.Errorf("another store: want ErrOtherLocks, have %v", err)
	}
	if len(b.servers(t)) != 1 {
		t.Errorf("want the one that runs alone in the list of servers, have %v", b.servers(t))
	}
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
		server := b.newServer(t, queue.ServerConfig{Lock: lock.Config{Prefix: prefix}})
		queue.Handle(server, newStage(t).run)
		t.Cleanup(func() { shutdown(t, server) })
		servers = append(servers, server)
	}
	errs := make(chan error, 2)
	for _, s := range servers {
		go func() { errs <- s.Start(t.Context()) }()
	}
	one, two := <-errs, <-errs
	if !errors.Is(one, queue.ErrOtherLocks) && !errors.Is(two, queue.ErrOtherLocks) {
		t.Errorf("want one refused at least, have %v and %v", one, two)
	}
}

// servers returns the names of the servers that asynq lists.
func (b *bundle) servers(t *testing.T) (names []string) {
	t.Helper()
	all, err := asynq.NewInspectorFromRedisClient(b.rdb).Servers()
	must(t, err)
	for _, s := range all {
		if _, serves := s.Queues[b.queue]; serves {
			names = append(names, s.ID)
		}
	}
	return names
}
