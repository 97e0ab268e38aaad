package hook_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// A row is how many tasks a script has parked, and in which of asynq's dequeues.
type row struct{ dequeue, tasks int }

// rows are those seen so far.
type rows struct {
	mu       sync.Mutex
	dequeues int
	seen     []row
}

// see is called before asynq's calls and after the scripts that the hook sends instead.
func (r *rows) see(cmd redis.Cmder, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, _ := takeApart(cmd)
	switch {
	case suffixes(keys, ":pending", ":paused", ":active", ":lease", ":notify", ":retry", ":contended") && err == nil:
		answer, ok := cmd.(*redis.Cmd)
		if !ok {
			return
		}
		if parts, err := answer.Slice(); err == nil && len(parts) > 2 {
			tasks := 0
			runs, _ := parts[2].([]any)
			for _, run := range runs {
				values, _ := run.([]any)
				tasks += (len(values) - 4) / 5
			}
			r.seen = append(r.seen, row{r.dequeues, tasks})
		}
	case len(keys) == 4 && suffixes(keys, ":pending", ":paused", ":active", ":lease"):
		r.dequeues++
	}
}

// A spy shows rows the calls at one place of the connection.
type spy struct {
	*rows

	before bool
}

func (s spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.before {
			s.see(cmd, nil)
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		s.see(cmd, err)
		return err
	}
}

// One call parks some 200 tasks whose locks are held. The calls that follow park the rest. Each task is
// reported once.
func TestManyAreParkedInOneCall(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		const tasks = 450
		resource := "order:" + f.queue
		must(t, f.rdb.Set(t.Context(), "lock:"+resource, "siding:token:somebody", time.Hour).Err())
		for range tasks {
			task := asynq.NewTaskWithHeaders("order:audit", nil, map[string]string{"siding-resource": resource})
			_, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue))
			must(t, err)
		}
		parked := make(chan hook.Parked, tasks)
		h := hook.NewHook(slog.New(slog.DiscardHandler), func() {})
		source, args := fastpath.Dequeue(), redisstore.LockArgs("lock:", 15*time.Second, time.Hour, time.Hour)
		h.TakeLocks(hook.Locking{
			Source: source, Args: args, Host: "here", Fallback: time.Hour, Spread: time.Hour,
			Unused: func(store.Grant) {}, Limited: func() string { return "" }, Parked: func(p hook.Parked) { parked <- p },
		})
		seen := &rows{}
		rdb := f.connect()
		rdb.AddHook(spy{seen, true})
		rdb.AddHook(h)
		rdb.AddHook(spy{seen, false})
		server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Queues: map[string]int{f.queue: 1}, LogLevel: asynq.FatalLevel})
		must(t, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			t.Error("want no task run")
			return nil
		})))
		ids := map[string]bool{}
		for i := range tasks {
			p := receive(t, parked, "a parked task")
			ids[p.ID] = true
			busy, err := redisstore.BusyResult(p.Busy)
			if err != nil || busy.Position != i+1 || busy.Holder != "siding:token:somebody" || p.Resource != resource || p.Kind != "order:audit" || p.Parked != 1 {
				t.Fatalf("want number %d parked once for %s, have %+v, %+v, %v", i+1, resource, p, busy, err)
			}
		}
		if len(ids) != tasks {
			t.Errorf("want %d tasks reported, have %d", tasks, len(ids))
		}
		server.Shutdown()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if want := []row{{1, 212}, {2, 212}, {3, 26}}; !slices.Equal(seen.seen, want) {
			t.Errorf("want %v, have %v", want, seen.seen)
		}
	})
}
