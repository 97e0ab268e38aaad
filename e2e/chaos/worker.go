package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// locks are those of the fleets. They live for 2 s, so that much happens in a minute, with a safety margin for an overloaded
// machine; or for CHAOS_TTL, with all else as users have it by default.
var locks = func() lock.Config {
	if ttl, err := time.ParseDuration(os.Getenv("CHAOS_TTL")); err == nil {
		return lock.Config{TTL: ttl, RenewEvery: ttl / 3, SafetyMargin: ttl / 15}
	}
	const ttl = 2 * time.Second
	return lock.Config{TTL: ttl, RenewEvery: ttl / 4, SafetyMargin: ttl / 4}
}()

// TTL is that of the fleets' locks.
var TTL = locks.TTL

// Settings are those of a worker process.
type Settings struct {
	Addrs       []string `json:"addrs"`
	MasterName  string   `json:"master_name,omitempty"`
	Ledger      string   `json:"ledger"`
	Journal     string   `json:"journal"`
	Concurrency int      `json:"concurrency"`
	// RecoverAll leaves no guarded task to asynq's own recovery, however often its worker dies and
	// even if it has no retries.
	RecoverAll bool `json:"recover_all,omitempty"`
	// Batch is how many tasks of a line it has at once, 0 for one.
	Batch int `json:"batch,omitempty"`
}

// A Pulse is what a running worker says of itself, a line of JSON at a time.
type Pulse struct {
	Goroutines int  `json:"goroutines"`
	Serving    bool `json:"serving"` // takes tasks
}

const pulseEvery = 250 * time.Millisecond

// errOwn is the failure of tasks whose fate it is.
var errOwn = errors.New("own failure")

// ErrOwn is its text, a task's last error in the archive.
var ErrOwn = errOwn.Error()

// errBrief is that of those that come again soon.
var errBrief = fmt.Errorf("%w, for a moment", errOwn)

type handlers struct {
	ledger  *Ledger
	journal *Journal
	serving atomic.Bool
}

// Serve runs a worker until ctx ends, then shuts it down.
func Serve(ctx context.Context, s Settings, stdout, stderr io.Writer) error {
	journal, err := OpenJournal(s.Journal)
	if err != nil {
		return err
	}
	ledger, err := OpenLedger(s.Ledger)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close() }()
	w := &handlers{ledger: ledger, journal: journal}
	var pulse sync.WaitGroup
	defer pulse.Wait()
	pulse.Go(func() { w.beat(ctx, stdout) })
	server, err := w.start(ctx, s, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil || server == nil {
		return err
	}
	w.serving.Store(true)
	<-ctx.Done()
	// asynq takes longer than this to stop when Redis is gone. The process then ends all the
	// same.
	const hardLimit = 10 * time.Second
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardLimit)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// start starts a server, as soon as Redis is there. start returns nil if ctx ends first.
func (w *handlers) start(ctx context.Context, s Settings, logger *slog.Logger) (*queue.Server, error) {
	weights := make(map[string]int)
	for _, name := range Queues {
		weights[name] = 1
	}
	var recovery queue.Recovery
	if s.RecoverAll {
		recovery = queue.Recovery{Crashes: math.MaxInt32, Losses: math.MaxInt32}
	}
	server, err := queue.NewServer(queue.RedisOpt{Addrs: s.Addrs, MasterName: s.MasterName}, queue.ServerConfig{
		Asynq: asynq.Config{
			Queues:                   weights,
			Concurrency:              s.Concurrency,
			DelayedTaskCheckInterval: 100 * time.Millisecond,
			ShutdownTimeout:          2 * time.Second,
			RetryDelayFunc:           retryDelay,
		},
		Recovery: recovery,
		Limits:   limits(),
		Lock:     locks,
		Observe:  w.observe,
		Logger:   logger,
	})
	if err != nil {
		return nil, err
	}
	if s.Batch > 0 {
		queue.HandleBatch(server, s.Batch, w.workOnAll)
	} else {
		queue.Handle(server, func(ctx context.Context, t Lined) error { return w.work(ctx, queue.InfoFrom(ctx), t.Work) })
	}
	queue.Handle(server, func(ctx context.Context, t Guarded) error { return w.work(ctx, queue.InfoFrom(ctx), t.Work) })
	queue.Handle(server, func(ctx context.Context, t Free) error { return w.work(ctx, queue.InfoFrom(ctx), t.Work) })
	for server.Start(context.WithoutCancel(ctx)) != nil {
		if sleep.For(ctx, pulseEvery) != nil {
			return nil, server.Shutdown(ctx)
		}
	}
	return server, nil
}

// observe writes down the requeues of tasks, and which ended by their policy.
func (w *handlers) observe(e queue.Event) {
	switch e.Kind {
	case queue.EventRecovered:
		w.journal.write(entry{What: "requeued", Task: e.TaskID})
	case queue.EventRejected, queue.EventCoalesced, queue.EventReplaced, queue.EventWaitedTooLong:
		w.journal.write(entry{What: "ended", End: e.Kind, Task: e.TaskID, Other: e.Other})
	default:
	}
}

// beat writes pulses until ctx ends, or nobody reads them.
func (w *handlers) beat(ctx context.Context, stdout io.Writer) {
	out := json.NewEncoder(stdout)
	for out.Encode(Pulse{Goroutines: runtime.NumGoroutine(), Serving: w.serving.Load()}) == nil && sleep.For(ctx, pulseEvery) == nil {
	}
}

// workOnAll works on the tasks of a batch, one after the other. Once one has failed, which holds the line, or the batch is over, it
// puts the others back.
func (w *handlers) workOnAll(ctx context.Context, batch []*queue.BatchTask[Lined]) error {
	var failed error
	for _, t := range batch {
		if failed != nil || ctx.Err() != nil {
			t.PutBack()
			continue
		}
		failed = w.work(ctx, t.Info, t.Task.Work)
		t.End(failed)
	}
	return nil
}

// work is the handler of all tasks.
func (w *handlers) work(ctx context.Context, info queue.Info, work Work) error {
	first := store.Names(info.Resource)[0]
	run := w.journal.Begin(info.ID, info.Resource, lock.Fence(ctx, first), info.Retried)
	watch := context.AfterFunc(ctx, func() { w.journal.write(entry{What: "lost", Run: run}) })
	err := w.do(ctx, work, info)
	watch()
	w.journal.write(entry{What: "returned", Run: run, Outcome: outcome(err)})
	return err
}

func (w *handlers) do(ctx context.Context, work Work, info queue.Info) error {
	if work.Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	if err := sleep.For(ctx, work.takes()); err != nil {
		return err
	}
	switch {
	case work.Fate == FatePermanent:
		return queue.Permanent(errOwn)
	case work.Fate == FateHopeless, work.Fate == FateFlaky && info.Retried == 0:
		return errOwn
	case work.Fate == FateTwice && info.Retried < 2:
		return errBrief
	}
	resource := info.Resource
	if IsPool(resource) || IsSet(resource) {
		resource = "" // the ledger would refuse the fences of all holders of a pool but the last, and takes one of a task
	}
	if err := w.ledger.Record(ctx, info.ID, resource); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

func retryDelay(n int, err error, t *asynq.Task) time.Duration {
	if errors.Is(err, errBrief) {
		return rest
	}
	return asynq.DefaultRetryDelayFunc(n, err, t)
}

func outcome(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, errOwn):
		return Failed
	case errors.Is(err, lock.ErrStale):
		return Stale
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, lock.ErrLost):
		return Ended
	default:
		return Broken
	}
}
