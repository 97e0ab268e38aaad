package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// pipelines counts those with scripts, and may lose the answer of one.
type pipelines struct {
	pipes atomic.Int32
	loses atomic.Bool
}

func (p *pipelines) see(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
	err := send(cmds...)
	if len(cmds) == 1 || cmds[len(cmds)-1].Name() != "evalsha" { // a call, or greetings of a connection
		return err
	}
	p.pipes.Add(1)
	if p.loses.Swap(false) {
		for _, cmd := range cmds {
			cmd.SetErr(io.ErrUnexpectedEOF)
		}
		return io.ErrUnexpectedEOF
	}
	return err
}

// errRefused stands for each TaskError.
var errRefused = errors.New("refused")

// Thousands of jobs take some round trips, and keep their order. Each result is at its job's index, also when some jobs
// are refused, and when Redis forgets scripts in between.
func TestBatchOfThousands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var trips pipelines
	b.rdb.AddHook(redistest.Hook(trips.see))
	const n = 2000
	jobs := make([]queue.Job, n)
	want := map[int]error{}
	for i := range jobs {
		o := &queue.Options{Queue: b.queue, TaskID: fmt.Sprint(i)}
		switch i % 100 {
		case 1:
			o.UniqueFor = time.Hour
		case 2: // of the same payload
			o.UniqueFor, want[i] = time.Hour, queue.ErrDuplicate
		case 3:
			o.Delay = time.Hour
		case 4:
			o.TaskID, want[i] = fmt.Sprint(i-1), queue.ErrTaskIDConflict
		}
		jobs[i] = queue.Job{Task: b.job(i - i%100/2%2), Options: o}
		if i%100 == 7 { // refused before Redis sees it: it has no resource
			jobs[i].Task, want[i] = job{}, errRefused
		}
	}
	for range 2 {
		client := newClient(t, b.rdb) // an old one does not register the queue again, as asynq's does not
		results := expect.Value(client.EnqueueBatch(t.Context(), jobs))(t)
		for i, r := range results {
			if _, refused := errors.AsType[*queue.TaskError](r.Err); refused {
				r.Err = errRefused
			}
			expect.Need(t, errors.Is(r.Err, want[i]) && (want[i] != nil || r.ID == fmt.Sprint(i)), "job %d: want %v, have %+v", i, want[i], r)
		}
		expect.Equal(t, "round trips", trips.pipes.Swap(0), n/500)
		var ids []string
		for i := range n {
			if want[i] == nil && i%100 != 3 {
				ids = append(ids, fmt.Sprint(i))
			}
		}
		have := b.rdb.LRange(t.Context(), "asynq:{"+b.queue+"}:pending", 0, -1).Val()
		slices.Reverse(have)
		expect.Same(t, "pending", have, ids)
		expect.OK(t, b.inspector.DeleteQueue(b.queue, true))
		expect.OK(t, b.rdb.ScriptFlush(t.Context()).Err())
		for _, key := range b.rdb.Keys(t.Context(), "asynq:{"+b.queue+"}:unique:*").Val() { // which stay behind
			b.rdb.Del(t.Context(), key)
		}
	}
}

// If an answer is lost, some of the round trip's jobs may be stored. So all of them get an error
// that says so, and later jobs are not sent.
func TestBatchWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var trips pipelines
	b.rdb.AddHook(redistest.Hook(trips.see))
	jobs := make([]queue.Job, 700)
	for i := range jobs {
		jobs[i] = queue.Job{Task: b.job(i), Options: &queue.Options{Queue: b.queue}}
	}
	trips.loses.Store(true)
	results, err := b.client.EnqueueBatch(t.Context(), jobs)
	expect.That(t, errors.Is(err, io.ErrUnexpectedEOF), "want the fault, have %v", err)
	for i, r := range results {
		expect.That(t, errors.Is(r.Err, io.ErrUnexpectedEOF) && r.ID == "", "job %d: want the fault as its error, have %+v", i, r)
	}
	expect.Equal(t, "tasks of the first round trip", b.rdb.LLen(t.Context(), "asynq:{"+b.queue+"}:pending").Val(), 500)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	results, err = b.client.EnqueueBatch(ended, []queue.Job{{Task: job{}}, {Task: b.job(1)}})
	if _, refused := errors.AsType[*queue.TaskError](results[0].Err); !refused || !errors.Is(err, context.Canceled) || !errors.Is(results[1].Err, context.Canceled) {
		t.Errorf("after the end of ctx: have %+v, %v", results, err)
	}
}

// A call that the client sends again, as the answer to it was lost, finds its own task. That is no
// conflict, also where the id may be somebody else's.
func TestOwnTaskIsNoConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	again := 0
	b.rdb.AddHook(tap(func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if err := send(); err != nil || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return err
		}
		again++
		return send()
	}))
	for i, o := range []queue.Options{{}, {TaskID: "chosen"}, {UniqueFor: time.Minute}} {
		o.Queue = b.queue
		receipt, err := b.client.Enqueue(t.Context(), b.job(i), &o)
		expect.That(t, err == nil && receipt.ID != "", "%+v: have %+v, %v", o, receipt, err)
	}
	have := b.stats().Pending
	expect.That(t, have == 3 && again >= 3, "want 3 tasks, each sent twice, have %d, and %d sent twice", have, again)
}
