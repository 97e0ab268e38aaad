package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// The users of docs/guides/operations.md.
const (
	aclWorker    = "siding-worker"
	aclEnqueue   = "siding-enqueue"
	aclDashboard = "siding-dashboard"
	aclOperator  = "siding-operator"
)

// rightsOf reads the users' rules from the page, so that the page and the test agree.
func rightsOf(t *testing.T) map[string][]string {
	t.Helper()
	page := expect.Value(os.ReadFile(filepath.Join("..", "docs", "guides", "operations.md")))(t)
	rights := make(map[string][]string)
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER (\S+) (.*)$`).FindAllStringSubmatch(string(page), -1) {
		rights[line[1]] = strings.Fields(line[2])
	}
	for _, user := range []string{aclWorker, aclEnqueue, aclDashboard, aclOperator} {
		expect.Need(t, len(rights[user]) != 0, "docs/guides/operations.md: want an ACL SETUSER line of %s", user)
	}
	return rights
}

// A guardedTestbed is a testbed whose Redis lets in only the page's users and an administrator.
type guardedTestbed struct {
	*testbed

	admin  *redis.Client
	rights map[string][]string
	asked  int // how often usage has sent INFO
}

const aclPassword = "correct-horse-battery-staple"

func newGuardedTestbed(t *testing.T) *guardedTestbed {
	t.Helper()
	g := &guardedTestbed{testbed: newTestbed(t), rights: rightsOf(t)}
	root := g.redis.Client(t)
	g.set(t, root, "admin", "on", ">PASSWORD", "+@all", "~*", "&*")
	for user, rules := range g.rights {
		g.set(t, root, user, rules...)
	}
	g.set(t, root, "default", "off")
	g.admin = g.client(t, "admin")
	return g
}

// set makes or changes a user.
func (g *guardedTestbed) set(t *testing.T, admin *redis.Client, user string, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user}
	for _, rule := range rules {
		args = append(args, strings.Replace(rule, ">PASSWORD", ">"+aclPassword, 1))
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("ACL SETUSER %s: %v", user, err)
	}
}

func (g *guardedTestbed) options(user string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{g.redis.Addr}, Username: user, Password: aclPassword, ContextTimeoutEnabled: true}
}

func (g *guardedTestbed) client(t *testing.T, user string) *redis.Client {
	t.Helper()
	client := redis.NewClient(g.options(user).Simple())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// server returns a server that logs in as the user.
func (g *guardedTestbed) server(t *testing.T, user string, cfg queue.ServerConfig) *queue.Server {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	return expect.Value(queue.NewServer(queue.RedisOpt(*g.options(user)), cfg))(t)
}

// as has the next programs log in as the user.
func (g *guardedTestbed) as(user string) {
	g.env = append(g.env, "SIDING_REDIS_USERNAME="+user, "SIDING_REDIS_PASSWORD="+aclPassword)
}

// begin forgets which commands ran.
func (g *guardedTestbed) begin(t *testing.T) {
	t.Helper()
	expect.OK(t, g.admin.ConfigResetStat(t.Context()).Err())
	g.asked = 0
}

// unused returns the commands that the page gives to a user and that did not run since begin. It
// also returns those that ran and are not on the page. Commands in scripts count. Everybody may log
// in.
func (g *guardedTestbed) unused(t *testing.T, user string) (unused, unlisted []string) {
	t.Helper()
	stats := expect.Value(g.admin.Info(t.Context(), "commandstats").Result())(t)
	var ran []string
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		none := m[2] == "0" || m[1] == "info" && m[2] == fmt.Sprint(g.asked)
		none = none || m[1] == "scan" && !slices.Contains(g.rights[user], "+scan") // by a test
		if !none && !slices.Contains([]string{"auth", "hello", "config|resetstat"}, m[1]) {
			ran = append(ran, m[1])
		}
	}
	g.asked++
	var listed []string
	for _, rule := range g.rights[user] {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			listed = append(listed, command)
		}
	}
	without := func(list, others []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
	}
	return without(listed, ran), without(ran, listed)
}

// wantExactly waits until all commands of the user have run, and then wants that no other has.
func (g *guardedTestbed) wantExactly(t *testing.T, user string) {
	t.Helper()
	var unlisted []string
	err := expect.Until(t.Context(), func() error {
		var unused []string
		unused, unlisted = g.unused(t, user)
		if len(unused) > 0 {
			return fmt.Errorf("never used: %q", unused)
		}
		return nil
	})
	expect.That(t, err == nil && len(unlisted) <= 0, "docs/guides/operations.md: %s: %v; used and not there: %q", user, err, unlisted)
	g.wantNoDenial(t)
}

// wantNoDenial wants no denial, except of CONFIG GET, which a worker does without.
func (g *guardedTestbed) wantNoDenial(t *testing.T) {
	t.Helper()
	for _, d := range g.denials(t) {
		expect.That(t, d.Object == "config|get", "%s: want all commands allowed, have %s %q denied", d.Username, d.Reason, d.Object)
	}
}

func (g *guardedTestbed) denials(t *testing.T) []*redis.ACLLogEntry {
	t.Helper()
	entries := expect.Value(g.admin.ACLLog(t.Context(), 100).Result())(t)
	return entries
}

func TestRightsOfAnEnqueuer(t *testing.T) {
	t.Parallel()
	g := newGuardedTestbed(t)
	g.as(aclEnqueue)
	g.begin(t)
	g.enqueueAll(t)
	saveCheckpoints(t, g.client(t, aclEnqueue))
	g.wantExactly(t, aclEnqueue)
}

// saveCheckpoints does what two runs of cmd/enqueue over one file do.
func saveCheckpoints(t *testing.T, rdb *redis.Client) {
	t.Helper()
	source := expect.Value(os.ReadFile(filepath.Join("..", "cmd", "enqueue", "checkpoint.lua")))(t)
	for _, line := range []int{5, 3} {
		// An error shows in the log of denials.
		_ = redis.NewScript(string(source)).Run(t.Context(), rdb, []string{"siding:enqueue:1:two-runs"}, line, 60).Err()
	}
}

// enqueueAll enqueues tasks in all the ways there are.
func (g *guardedTestbed) enqueueAll(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, `{"kind":"order:audit","payload":{"order":"53636%d","lines":%d},"unique":true,"retention":"1s"}`+"\n", i%2, i+1)
	}
	fmt.Fprintln(&lines, `{"kind":"order:audit","payload":{"order":"536365"},"delay":"1s","retention":"1s"}`)
	for range 2 {
		fmt.Fprintln(&lines, `{"kind":"order:audit","payload":{"order":"536365"},"debounce":"acl","delay":"2s","max_delay":"2s"}`)
	}
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	expect.OK(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	for _, args := range [][]string{
		{"stream", file},
		{"stream", file}, // goes on after its end
		{"task", "order:audit", "--payload", `{"order":"536366"}`},
		{"stream", file, "--restart"}, // finds all of them enqueued
	} {
		if _, err := g.enqueue(t.Context(), args...); err != nil {
			t.Fatalf("enqueue %q: %v", args, err)
		}
	}
}

func TestRightsOfAWorker(t *testing.T) {
	t.Parallel()
	g := newGuardedTestbed(t)
	g.as("admin")
	g.enqueueAll(t)
	client := newClient(t, g.admin)
	for _, retries := range []int{queue.NoRetries, 1} { // one is archived, one tried again
		expect.Value(client.Enqueue(t.Context(), stranger{}, &queue.Options{Retries: retries}))(t)
	}
	g.activate(t)
	g.enqueueByAsynq(t)
	g.prepareRare(t)
	expect.OK(t, g.fillLines(t.Context()))
	g.begin(t)

	g.as(aclWorker)
	w := g.startWorker(t, "--work", "300ms", "--lock-ttl", "900ms", "--http-dashboard=false")
	rdb, ctx := g.client(t, aclWorker), t.Context()
	g.waitForLock(t, rdb)
	shareLock(t, rdb)
	g.workRare(t)
	expect.Eventually(t, "a task parked", func() bool { return g.admin.ZCard(ctx, "asynq:{default}:retry").Val() > 0 })
	expect.Eventually(t, "the gauges of the fleet read", func() bool { // a busy Redis may answer too late once
		return strings.Contains(fetch(t, w.base(t)+"/metrics"), "\nsiding_redis_up 1\n")
	})
	g.wantExactly(t, aclWorker)
	expect.Eventually(t, "all tasks done but the strangers", func() bool {
		keys, _, err := g.admin.Scan(ctx, 0, "asynq:{default}:t:*", 10000).Result()
		return err == nil && len(keys) == 2
	})
	if sum := w.terminate(t); sum.Contended == 0 || sum.Succeeded < 40 {
		t.Errorf("want 40 tasks or more, some of which had to wait, have %+v", sum)
	}
	g.wantNoDenial(t)
}

func TestRightsOfAWorkerWithAStore(t *testing.T) {
	t.Parallel()
	g := newGuardedTestbed(t)
	besides, page := []string{"~wait:lock:*", "~{wait:lock:*"}, read(t, filepath.Join("..", "docs", "guides", "operations.md"))
	for _, key := range besides {
		wantText(t, page, "`"+key+"`")
	}
	g.set(t, g.admin, aclWorker, besides...)
	server := g.server(t, aclWorker, queue.ServerConfig{Store: locktest.NewMemory()})
	var runs atomic.Int32
	queue.Handle(server, func(context.Context, guarded) error {
		runs.Add(1)
		return nil
	})
	const tasks = 3
	for range tasks {
		expect.Value(newClient(t, g.admin).Enqueue(t.Context(), guarded{}, nil))(t)
	}
	expect.OK(t, server.Start(t.Context()))
	expect.Eventually(t, "the tasks done", func() bool { return runs.Load() == tasks })
	expect.OK(t, server.Shutdown(t.Context()))
	g.wantNoDenial(t)
}

// activate leaves a task that is active and holds no lock, as one whose worker has just died. The
// metrics then look for the lock of an external store.
func (g *guardedTestbed) activate(t *testing.T) {
	t.Helper()
	const queueName = "elsewhere"
	expect.Value(newClient(t, g.admin).Enqueue(t.Context(), guarded{}, &queue.Options{Queue: queueName, TaskID: "active"}))(t)
	expect.OK(t, errors.Join(
		g.admin.LMove(t.Context(), taskredis.PendingKey(queueName), taskredis.ActiveKey(queueName), "RIGHT", "LEFT").Err(),
		g.admin.HSet(t.Context(), taskredis.TaskKey(queueName, "active"), "state", "active").Err(),
	))
}

// enqueueByAsynq enqueues tasks by asynq's client, which knows nothing of resources. The worker finds out that they need
// the same lock when it has taken them.
func (g *guardedTestbed) enqueueByAsynq(t *testing.T) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(g.admin)
	for range 3 {
		expect.Value(client.EnqueueContext(t.Context(), asynq.NewTask("order:audit", []byte(`{"order":"536370","lines":1}`))))(t)
	}
}

// The queues of the server that has what is rare.
const (
	rareQueue   = "rare"
	haltedQueue = "halted" // is paused
)

// prepareRare leaves a task without a resource whose worker has died, one that is pending and also among the active, as
// when a script has failed in the middle, and a group of three tasks.
func (g *guardedTestbed) prepareRare(t *testing.T) {
	t.Helper()
	ctx, client := t.Context(), newClient(t, g.admin)
	for _, queueName := range []string{rareQueue, haltedQueue} {
		expect.Value(client.Enqueue(ctx, stranger{}, &queue.Options{Queue: queueName, TaskID: "crashed", Retries: queue.NoRetries}))(t)
		expect.OK(t, g.admin.ZAdd(ctx, taskredis.LeaseKey(queueName), redis.Z{Score: 1, Member: "crashed"}).Err())
	}
	expect.OK(t, errors.Join(
		g.admin.LMove(ctx, taskredis.PendingKey(rareQueue), taskredis.ActiveKey(rareQueue), "RIGHT", "LEFT").Err(),
		g.admin.HSet(ctx, taskredis.TaskKey(rareQueue, "crashed"), "state", "active").Err(),
		g.admin.LPush(ctx, taskredis.ActiveKey(haltedQueue), "crashed").Err(),
		g.admin.Set(ctx, taskredis.PausedKey(haltedQueue), "1", 0).Err(),
	))
	grouped := asynq.NewClientFromRedisClient(g.admin)
	for range 3 {
		expect.Value(grouped.EnqueueContext(ctx, asynq.NewTask("test:grouped", nil), asynq.Queue(rareQueue), asynq.Group("three")))(t)
	}
}

// workRare has a server with the worker's rights do what cmd/worker does rarely or never: it ends the task that has
// crashed, makes one task of two of the group and another of the third, and gives a task back that runs when it ends.
func (g *guardedTestbed) workRare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	server := g.server(t, aclWorker, queue.ServerConfig{Asynq: asynq.Config{
		Queues: map[string]int{rareQueue: 1, haltedQueue: 1}, ShutdownTimeout: time.Millisecond,
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			return asynq.NewTask(success{}.Kind(), []byte("{}"))
		}),
		GroupMaxSize: 2, GroupGracePeriod: time.Second,
	}})
	// Mostly a step of the server comes first to the task that is pending and active, so what upkeep does is done here.
	upkeep := taskredis.Upkeep{Redis: g.client(t, aclWorker), Queues: []string{haltedQueue}}
	if _, err := upkeep.Leases(ctx, haltedQueue, 0); err != nil {
		t.Error(err)
	}
	// And a server with little to do may never have two steps under way, of which each asks for the record of the other.
	steps := taskredis.Steps{Redis: g.client(t, aclWorker), Session: "rare", Prefix: "lock:", TTL: time.Second, FenceTTL: time.Minute}
	expect.OK(t, expect.Err(steps.Step(ctx, &taskredis.Step{Number: 1, OtherAfter: 1})))
	var runs atomic.Int32
	queue.Handle(server, func(ctx context.Context, _ success) error {
		runs.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})
	expect.OK(t, server.Start(ctx))
	expect.Eventually(t, "the group aggregated and the crashed tasks ended", func() bool {
		return runs.Load() == 2 && g.admin.ZCard(ctx, taskredis.ArchivedKey(rareQueue)).Val() == 1 && g.admin.LLen(ctx, taskredis.ActiveKey(haltedQueue)).Val() == 0
	})
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// A guarded is a task with a resource that no worker knows.
type guarded struct{}

func (guarded) Kind() string     { return "test:guarded" }
func (guarded) Resource() string { return "res:active" }

// A stranger is a task that no worker knows.
type stranger struct{}

func (stranger) Kind() string { return "test:stranger" }

// waitForLock has one goroutine wait for a lock until another releases it.
func (g *guardedTestbed) waitForLock(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	first, second := newLocker(t, rdb), newLocker(t, rdb)
	lease := expect.Value(first.Acquire(t.Context(), "res:line", nil))(t)
	got := make(chan error, 1)
	go func() {
		lease, err := second.Acquire(t.Context(), "res:line", &lock.Options{Wait: lock.Forever})
		if err == nil {
			err = lease.Release(context.WithoutCancel(t.Context()))
		}
		got <- err
	}()
	expect.Eventually(t, "a waiter", func() bool {
		keys, _, err := g.admin.Scan(t.Context(), 0, "{lock:res:line}:queue", 1000).Result()
		return err == nil && len(keys) == 1
	})
	if err := errors.Join(lease.Release(t.Context()), <-got); err != nil {
		t.Error(err)
	}
}

// shareLock has two hold a lock at once, as its limit allows.
func shareLock(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	locker := newLocker(t, rdb)
	for range 2 {
		held := expect.Value(locker.Acquire(t.Context(), "res:shared", &lock.Options{Limit: 2, Rates: []lock.Rate{{Starts: 10, Period: time.Minute}}}))(t)
		defer func() { _ = held.Release(context.WithoutCancel(t.Context())) }()
	}
}

func newLocker(t *testing.T, rdb redis.UniversalClient) *lock.Locker {
	t.Helper()
	locker := expect.Value(lock.New(lock.Redis(rdb), lock.Config{}))(t)
	t.Cleanup(locker.Close)
	return locker
}

// revokeAll takes locks from a lease, and from a program on the plain protocol. For the second one a
// task waits, for a third one a goroutine.
func (g *guardedTestbed) revokeAll(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	_, err := newLocker(t, g.admin).Acquire(ctx, "revoked:1", &lock.Options{NoRenew: true})
	expect.OK(t, errors.Join(
		err,
		g.admin.Set(ctx, "lock:revoked:2", "theirs", 0).Err(),
		g.admin.Set(ctx, "lock:revoked:3", "theirs", 0).Err(),
		g.waitInLine(ctx, "elsewhere", "parked", "lock:revoked:2"),
		g.admin.ZAdd(ctx, "{lock:revoked:3}:queue", redis.Z{Score: 7, Member: "siding-goroutine:nobody:1"}).Err(),
	))
	for _, resource := range []string{"revoked:1", "revoked:2", "revoked:3"} {
		if _, err := queue.Revoke(ctx, rdb, queue.Revocation{Resource: resource, By: "ann", Reason: "it hangs"}); err != nil {
			t.Error(err)
		}
	}
	g.revokePermit(t, rdb)
	expect.That(t, g.admin.LLen(ctx, taskredis.NotifyKey("elsewhere")).Val() != 0, "want a server of the waiting task's queue notified")
}

// waitInLine puts a task into the line of a lock, in front of all.
func (g *guardedTestbed) waitInLine(ctx context.Context, queueName, id, lock string) error {
	const ticket = 7
	return errors.Join(
		g.admin.ZAdd(ctx, taskredis.LineKey(queueName, lock), redis.Z{Score: ticket, Member: id}).Err(),
		g.admin.ZAdd(ctx, taskredis.LinesKey(lock), redis.Z{Score: ticket, Member: queueName}).Err(),
		g.admin.ZAdd(ctx, taskredis.ReadyKey(queueName), redis.Z{Score: 1e18, Member: lock}).Err(),
		g.admin.HSet(ctx, taskredis.TaskKey(queueName, id), "siding_ticket", ticket, "siding_lock", lock).Err(),
	)
}

// revokePermit takes a lock that two hold from the one who has it for longer. A task waits for it.
func (g *guardedTestbed) revokePermit(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	rated := &lock.Options{NoRenew: true, Limit: 2, Rates: []lock.Rate{{Starts: 2, Period: time.Hour}}}
	held := expect.Value(newLocker(t, g.admin).Acquire(ctx, "revoked:4", rated))(t)
	expect.Value(newLocker(t, g.admin).Acquire(ctx, "revoked:4", rated))(t)
	expect.OK(t, g.waitInLine(ctx, "elsewhere", "parked", "lock:revoked:4"))
	if _, err := queue.Revoke(ctx, rdb, queue.Revocation{Resource: "revoked:4", Fence: held.Fence(), By: "ann", Reason: "it hangs"}); err != nil {
		t.Error(err)
	}
}

func TestRightsOfADashboard(t *testing.T) {
	t.Parallel()
	g := newGuardedTestbed(t)
	g.fillQueue(t)
	g.fillLocks(t)
	g.begin(t)
	h := expect.Value(dashboard.New(dashboard.Config{Redis: g.options(aclDashboard)}))(t)
	t.Cleanup(func() { _ = h.Close() })
	ask := func(method, path string, want int) {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
		reply := httptest.NewRecorder()
		h.ServeHTTP(reply, r)
		expect.That(t, reply.Code == want, "%s %s: want %d, have %d %s", method, path, want, reply.Code, reply.Body)
	}
	g.revokeAll(t, g.client(t, aclDashboard))
	send := func(method, path string, want int) { ask(method, "/dashboard/api/"+path, want) }
	for _, path := range []string{
		"", "/resource?name=order:1", "/task?id=pending-1", "/task?id=scheduled-1", "/task?id=retry-3",
	} {
		ask(http.MethodGet, "/locks"+path, http.StatusOK)
	}
	for resource, seen := range map[string]string{"order:1": `held 0 "somebody"`, "order:2": `foreign 0 "another program"`} {
		form := url.Values{"name": {resource}, "seen": {seen}, "reason": {"it hangs"}, "sure": {"yes"}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/locks/resource", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		reply := httptest.NewRecorder()
		if h.ServeHTTP(reply, r); reply.Code != http.StatusSeeOther {
			t.Errorf("release of %s: have %d %s", resource, reply.Code, regexp.MustCompile(`notice bad.*`).FindString(reply.Body.String()))
		}
	}
	const one = "queues/default"
	for _, path := range []string{
		"queues", one, "queue_stats", "servers", "scheduler_entries", "redis_info",
		one + "/active_tasks", one + "/pending_tasks", one + "/scheduled_tasks", one + "/retry_tasks",
		one + "/archived_tasks", one + "/completed_tasks", one + "/groups", one + "/tasks/pending-1",
	} {
		send(http.MethodGet, path, http.StatusOK)
	}
	for _, state := range []string{"pending", "scheduled", "retry", "archived", "completed"} {
		send(http.MethodDelete, one+"/"+state+"_tasks/"+state+"-1", http.StatusNoContent)
	}
	for _, path := range []string{
		":pause", ":resume", "/active_tasks/anything:cancel",
		"/pending_tasks/pending-2:archive", "/scheduled_tasks/scheduled-2:run", "/retry_tasks/retry-2:run", "/archived_tasks/archived-2:run",
	} {
		send(http.MethodPost, one+path, http.StatusNoContent)
	}
	for _, path := range []string{"/scheduled_tasks:run_all", "/pending_tasks:archive_all"} {
		send(http.MethodPost, one+path, http.StatusOK)
	}
	for _, state := range []string{"pending", "scheduled", "retry", "archived", "completed"} {
		send(http.MethodDelete, one+"/"+state+"_tasks:delete_all", http.StatusOK)
	}
	send(http.MethodDelete, one, http.StatusNoContent)
	g.wantExactly(t, aclDashboard)
}

// prolong gives all that ends in some seconds ten minutes.
func (g *guardedTestbed) prolong(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	keys, _, err := g.admin.Scan(ctx, 0, "*", 10000).Result()
	expect.OK(t, err)
	later := float64(time.Now().Add(10 * time.Minute).Unix())
	for _, key := range keys {
		if left := g.admin.PTTL(ctx, key).Val(); left > 0 {
			err = errors.Join(err, g.admin.Expire(ctx, key, 10*time.Minute).Err())
		}
		if key == "asynq:servers" || key == "asynq:workers" || strings.HasSuffix(key, ":lease") {
			for _, member := range g.admin.ZRange(ctx, key, 0, -1).Val() {
				err = errors.Join(err, g.admin.ZAdd(ctx, key, redis.Z{Score: later, Member: member}).Err())
			}
		}
	}
	expect.OK(t, err)
}

func TestRightsOfAnOperator(t *testing.T) {
	t.Parallel()
	g := newGuardedTestbed(t)
	g.as("admin")
	w := g.startWorker(t, "--work", "1m", "--http-dashboard=false")
	ctx := t.Context()
	for _, id := range []string{"runs", "waits"} {
		if out, err := g.enqueue(ctx, "task", "order:audit", "--payload", `{"order":"536365"}`, "--id", id); err != nil {
			t.Fatalf("enqueue: %v\n%s", err, out)
		}
		expect.Eventually(t, id+" runs or waits", func() bool {
			n, err := g.admin.HExists(ctx, "asynq:{default}:t:"+id, map[string]string{"runs": "siding_attempt", "waits": "siding_until"}[id]).Result()
			return err == nil && n
		})
	}
	expect.Eventually(t, "the worker is elected", func() bool {
		keys, _, err := g.admin.Scan(ctx, 0, "siding:upkeep:*", 1000).Result()
		return err == nil && len(keys) == 1
	})
	// The worker, which would run commands as well, is killed. Its lock, its entry and its election look as if it lived.
	w.kill(t)
	g.prolong(t)
	expect.Value(g.enqueue(ctx, "task", "order:audit", "--payload", `{"order":"1"}`, "--id", "pends"))(t)
	// What becomes of tasks each of which is the only one of its group. asynq deletes the group with it.
	grouped := map[string]string{"to-run": "pending", "to-archive": "archived", "to-delete": ""}
	for id := range grouped {
		client := asynq.NewClientFromRedisClient(g.admin)
		expect.Value(client.EnqueueContext(ctx, asynq.NewTask("test:grouped", nil), asynq.TaskID(id), asynq.Group(id)))(t)
	}
	expect.OK(t, errors.Join(
		g.fillLines(ctx),
		g.admin.ZAdd(ctx, "{lock:order:536365}:queue", redis.Z{Score: 1, Member: "siding-goroutine:gone:1"}).Err(),
	))
	g.begin(t)
	g.as(aclOperator)
	for _, args := range []string{
		"doctor",
		"list",
		"list --all",
		"show order:536365",
		"why runs",
		"why waits",
		"why pends",
		"tasks",
		"tasks order:536365",
		"queue pause default --reason drill --yes",
		"queue resume default",
		"archive pends --reason drill --yes",
		"run pends",
		"delete pends --reason drill --yes",
		"run to-run",
		"archive to-archive --reason drill --yes",
		"delete to-delete --reason drill --yes",
		"limit set res:9 0 --reason drill",
		"limit list",
		"limit unset res:9",
		"release order:536365 --reason drill --yes",
	} {
		if out, errs, status := g.lockctl(t, strings.Fields(args)...); status != 0 {
			t.Errorf("lockctl %s: want status 0, have %d\n%s%s", args, status, out, errs)
		}
	}
	for id, want := range grouped {
		state := "" // of one that is deleted
		if info, err := asynq.NewInspectorFromRedisClient(g.admin).GetTaskInfo("default", id); err == nil {
			state = info.State.String()
		}
		expect.That(t, state == want, "%s, the only task of its group: want it %q, have %q", id, want, state)
	}
	// The lock of another program is free, or goes to the next waiter, at once.
	for resource, want := range map[string]string{"res:1": "The lock is free.", "order:536365": "The next waiter has the lock."} {
		expect.OK(t, g.admin.Set(ctx, "lock:"+resource, "somebody", 0).Err())
		if out, errs, status := g.lockctl(t, "release", resource, "--reason", "drill", "--yes"); status != 0 || !strings.Contains(out, want) {
			t.Errorf("release of %s: want %q, have status %d\n%s%s", resource, want, status, out, errs)
		}
	}
	g.revokePermit(t, g.client(t, aclOperator))
	g.revokeForEach(t, g.client(t, aclOperator))
	g.wantExactly(t, aclOperator)
}

// revokeForEach takes a lock from a program on the plain protocol, for each kind of waiter: a goroutine, and a task.
func (g *guardedTestbed) revokeForEach(t *testing.T, rdb *redis.Client) {
	t.Helper()
	const lock = "lock:res:operator"
	for _, wait := range []func() error{
		func() error {
			return g.admin.ZAdd(t.Context(), "{"+lock+"}:queue", redis.Z{Score: 1, Member: "siding-goroutine:gone:1"}).Err()
		},
		func() error { return g.waitInLine(t.Context(), "elsewhere", "gone", lock) },
	} {
		g.admin.Del(t.Context(), "{"+lock+"}:queue", taskredis.LinesKey(lock))
		g.admin.Set(t.Context(), lock, "somebody", 0)
		expect.OK(t, wait())
		_, _ = queue.Revoke(t.Context(), rdb, queue.Revocation{Resource: "res:operator", By: "operator", Reason: "drill"})
	}
}

// fillQueue leaves two tasks or more in each state but active, named after it.
func (g *guardedTestbed) fillQueue(t *testing.T) {
	t.Helper()
	server := g.server(t, "admin", queue.ServerConfig{})
	queue.Handle(server, func(context.Context, success) error { return nil })
	expect.OK(t, server.Start(t.Context()))
	inspector := asynq.NewInspectorFromRedisClient(g.admin)
	client := newClient(t, g.admin)
	put := func(task queue.Task, state string, opts queue.Options) {
		for i := range 3 {
			opts.TaskID = fmt.Sprint(state, "-", i+1)
			expect.Value(client.Enqueue(t.Context(), task, &opts))(t)
		}
		expect.Eventually(t, "three tasks "+state, func() bool {
			for i := range 3 {
				info, err := inspector.GetTaskInfo("default", fmt.Sprint(state, "-", i+1))
				if err != nil || info.State.String() != state {
					return false
				}
			}
			return true
		})
	}
	put(success{}, "completed", queue.Options{Retention: time.Hour})
	put(stranger{}, "archived", queue.Options{Retries: queue.NoRetries})
	put(stranger{}, "retry", queue.Options{Retries: 5})
	put(stranger{}, "scheduled", queue.Options{Delay: time.Hour})
	expect.OK(t, server.Shutdown(t.Context()))
	put(stranger{}, "pending", queue.Options{})
}

// fillLines leaves a queue with so many lines that only some of them are counted.
func (g *guardedTestbed) fillLines(ctx context.Context) error {
	const many = "many"
	var locks []redis.Z
	for i := range 501 {
		locks = append(locks, redis.Z{Score: 1e18, Member: fmt.Sprint("lock:many:", i)})
	}
	return errors.Join(g.admin.SAdd(ctx, "asynq:queues", many).Err(), g.admin.ZAdd(ctx, taskredis.ReadyKey(many), locks...).Err())
}

// fillLocks leaves a lock that is held, for which the task retry-3 and a goroutine wait, one that another program holds, for
// which the task retry-1 waits, and many lines.
func (g *guardedTestbed) fillLocks(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	const key, foreign = "lock:order:1", "lock:order:2"
	until := func(id string) error {
		score, err := g.admin.ZScore(ctx, taskredis.RetryKey("default"), id).Result()
		return errors.Join(err, g.admin.HSet(ctx, taskredis.TaskKey("default", id), "siding_until", int64(score)).Err())
	}
	expect.OK(t, errors.Join(
		g.fillLines(ctx),
		g.admin.Set(ctx, key, "siding:token:somebody", time.Hour).Err(),
		g.admin.Set(ctx, foreign, "somebody", time.Hour).Err(),
		g.waitInLine(ctx, "default", "retry-1", foreign), until("retry-1"),
		g.waitInLine(ctx, "default", "retry-3", key), until("retry-3"),
		g.admin.ZAdd(ctx, "{"+key+"}:queue", redis.Z{Score: 8, Member: "siding-goroutine:nobody:1"}).Err(),
	))
}

// A success is a task that needs no lock and succeeds.
type success struct{}

func (success) Kind() string { return "test:success" }
