package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A transfer needs the accounts between which it moves an amount.
type transfer struct {
	Accounts []string `json:"accounts"`
	N        int      `json:"n"`
}

func (transfer) Kind() string       { return "test:transfer" }
func (t transfer) Resource() string { return queue.AllOf(t.Accounts...) }

// Transfers between accounts lose nothing, whatever the order of their accounts, on each kind of store.
func TestTasksOfSeveralResources(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(b *bundle, store lock.Store) {
		b.Helper()
		const tasks, accounts = 80, 6
		var mu sync.Mutex
		balances, users, done := map[string]int{}, map[string]int{}, atomic.Int64{}
		s := b.newServer(queue.ServerConfig{Store: store, Asynq: asynq.Config{Concurrency: 20}})
		queue.Handle(s, func(ctx context.Context, task transfer) error {
			expect.Equal(b, "resource", queue.InfoFrom(ctx).Resource, queue.AllOf(task.Accounts...))
			mu.Lock()
			for _, account := range task.Accounts {
				expect.That(b, store != nil || lock.Fence(ctx, account) != 0, "want a fence of %s", account)
				if users[account]++; users[account] > 1 {
					b.Errorf("%d tasks use %s", users[account], account)
				}
			}
			from, to := balances[task.Accounts[0]], balances[task.Accounts[1]]
			mu.Unlock()
			work := time.NewTimer(time.Duration(rand.IntN(3)) * time.Millisecond)
			defer work.Stop()
			<-work.C
			mu.Lock()
			defer mu.Unlock()
			balances[task.Accounts[0]], balances[task.Accounts[1]] = from-task.N, to+task.N
			for _, account := range task.Accounts {
				users[account]--
			}
			done.Add(1)
			return nil
		})
		start(b, s)
		want := map[string]int{}
		for n := range tasks {
			pick := rand.Perm(accounts)
			from, to := fmt.Sprint("account:", b.queue, pick[0]), fmt.Sprint("account:", b.queue, pick[1])
			want[from], want[to] = want[from]-n, want[to]+n
			b.enqueue(transfer{[]string{from, to}, n})
		}
		expect.Eventually(b, "all transfers", func() bool { return done.Load() == tasks })
		mu.Lock()
		defer mu.Unlock()
		for account, balance := range want {
			expect.That(b, balances[account] == balance, "%s: want %d, have %d", account, balance, balances[account])
		}
	})
}

// A task that waits for one of its resources keeps nobody from work in the meantime but those who came behind it, and
// tells the observer.
func TestTaskOfSeveralResourcesWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.resource+":1", b.resource+":2"
	held := expect.Value(b.locker.Acquire(t.Context(), two, nil))(t)
	s := b.newServer(queue.ServerConfig{Observe: b.observe})
	order := make(chan string, 3)
	queue.Handle(s, func(ctx context.Context, _ transfer) error {
		order <- "set"
		for _, name := range []string{one, two} { // it has them, and may take them again
			again, err := s.Locker().Acquire(ctx, name, &lock.Options{Reentrant: true})
			if err != nil {
				t.Errorf("again: %v", err)
				return err
			}
			defer func() { _ = again.Release(context.WithoutCancel(ctx)) }()
		}
		return nil
	})
	queue.Handle(s, func(_ context.Context, task job) error {
		order <- fmt.Sprint("job ", task.N)
		return nil
	})
	start(t, s)
	set := b.enqueue(transfer{[]string{two, one}, 1})
	e := b.await(queue.EventParked, set, 1)
	expect.That(t, e.Resource == queue.AllOf(one, two) && e.Holder != "", "parked: have %+v", e)
	expect.Equal(t, one+", which it does not hold while it waits", b.rdb.Get(t.Context(), "lock:"+one).Val(), "")
	behind := b.enqueue(job{one, 1})
	b.await(queue.EventParked, behind, 1)
	expect.OK(t, held.Release(t.Context()))
	for _, want := range []string{"set", "job 1"} {
		expect.Equal(t, "the next", within(t, patience, want, order), want)
	}
	e = b.await(queue.EventAcquired, set, 1)
	expect.That(t, e.Via == queue.ViaHandOff && e.Fence != 0, "acquired: have %+v", e)
	b.awaitBalance()
}

// An operator takes one of its locks: the attempt has lost what it needs, its end names the operator, and the task comes again.
func TestTaskLosesOneOfSeveralResources(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		one, two := b.resource+":1", b.resource+":2"
		runs := make(chan context.Context, 2)
		s := b.newServer(queue.ServerConfig{Observe: b.observe, Lock: shortTimes})
		queue.Handle(s, func(ctx context.Context, _ transfer) error {
			runs <- ctx
			if len(b.of(queue.EventLost, "")) == 0 {
				<-ctx.Done()
			}
			return nil
		})
		start(b, s)
		set := b.enqueue(transfer{[]string{one, two}, 1})
		ctx := within(b, patience, "a run", runs)
		expect.OK(b, expect.Err(queue.Revoke(b.Context(), b.rdb, queue.Revocation{Resource: two, By: "a test", Reason: "it wants to know"})))
		within(b, patience, "the end of the run", ctx.Done())
		expect.That(b, errors.Is(context.Cause(ctx), lock.ErrLost), "want the lock lost, have %v", context.Cause(ctx))
		e := b.await(queue.EventLost, set, 1)
		expect.That(b, strings.Contains(fmt.Sprint(e.Err), "a test released it: it wants to know"), "want it revoked by a test, have %+v", e)
		b.awaitGone(set)
	})
}

// Whoever enqueues hears at once what cannot be.
func TestTasksOfSeveralResourcesThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprint("a:", i)
	}
	sharded := b.sharded(2)
	for name, tt := range map[string]struct {
		client    *queue.Client
		resources []string
		opts      queue.Options
		want      string
	}{
		"none":             {b.client, nil, queue.Options{}, "it is empty"},
		"an empty one":     {b.client, []string{"a", ""}, queue.Options{}, "it is empty"},
		"too many":         {b.client, many, queue.Options{}, "want at most 16 at once, have 17"},
		"a line break":     {b.client, []string{"a", "b\nc"}, queue.Options{}, "control character"},
		"a line break too": {b.client, []string{"b\nc"}, queue.Options{}, "control character"},
		"equal tasks":      {b.client, []string{"a", "b"}, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce}}, "several resources"},
		"a crowd":          {b.client, []string{"a", "b"}, queue.Options{Policy: &queue.Policy{MaxWaiting: 3}}, "several resources"},
		"shards":           {sharded, []string{"a", "b"}, queue.Options{}, "want one without shards"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.opts.Queue = b.queue
			_, err := tt.client.Enqueue(t.Context(), transfer{Accounts: tt.resources}, &tt.opts)
			refused := (*queue.TaskError)(nil)
			expect.That(t, errors.As(err, &refused) && strings.Contains(err.Error(), tt.want), "want %q, have %v", tt.want, err)
		})
	}
}

// asynq's own clients name several resources in a header, or the program does by the payload. One that cannot be is archived.
func TestAsynqTasksOfSeveralResources(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		ran := make(chan string, 2)
		s := b.newServer(queue.ServerConfig{
			Handler: asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				ran <- queue.InfoFrom(ctx).Resource
				return nil
			}),
			Resources: map[string]queue.ResourceFunc{"by:payload": func(payload []byte) (string, error) {
				return queue.AllOf(strings.Split(string(payload), " ")...), nil
			}},
			Policies: map[string]queue.Policy{"compared": {OnBusy: queue.OnBusyReplace}},
		})
		start(b, s)
		want := queue.AllOf("a"+b.resource, "b"+b.resource)
		add := func(kind, payload string, headers map[string]string) string {
			return b.enqueueTask(asynq.NewTaskWithHeaders(kind, []byte(payload), headers))
		}
		add("by:header", "", map[string]string{queue.HeaderResource: "\nb" + b.resource + "\na" + b.resource + "\na" + b.resource})
		add("by:payload", "b"+b.resource+" a"+b.resource, nil)
		for range 2 {
			expect.Equal(b, "resource", within(b, patience, "a task", ran), want)
		}
		for kind, header := range map[string]string{"bad": "\na\n", "compared": want} {
			info := b.awaitState(add(kind, "", map[string]string{queue.HeaderResource: header}), asynq.TaskStateArchived)
			expect.That(b, strings.Contains(info.LastErr, "resource"), "%s: have %q", kind, info.LastErr)
		}
	})
}

// Each resource is once in the text, in one order: so tasks that need the same ones are known as such.
func TestAllOf(t *testing.T) {
	t.Parallel()
	expect.Equal(t, "each once, in order", queue.AllOf("b", "a", "b"), queue.AllOf("a", "b"))
	expect.Equal(t, "a single one", queue.AllOf("a", "a"), "a")
	names := strings.Fields(queue.AllOf("b", "a"))
	expect.That(t, slices.Equal(names, []string{"a", "b"}), "have %q", names)
}
