package queuetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/sidingq/siding/queue"
)

// A Recorder keeps tasks instead of sending them. The methods of a Recorder have the signatures of
// queue.Client's. Let the code under test ask for an interface with the methods that it calls. The
// zero value is ready and safe for use by several goroutines.
type Recorder struct {
	// Err, if set, is the answer to every call, as if Redis were away.
	Err error

	mu     sync.Mutex
	jobs   []queue.Job
	ids    map[string]bool // queue and id of what is kept
	unique map[string]bool // queue, kind and payload of what is kept and unique
	// debounced are the ids of what is kept, by queue, kind, resource and Debounce.
	debounced map[string]string
}

// Enqueue refuses what a client would refuse, and keeps the rest. As the tasks
// are never run, an id or a unique task stays taken until [Recorder.Reset], and
// a task with a Debounce waits for its delay, and is replaced, until then.
func (r *Recorder) Enqueue(ctx context.Context, t queue.Task, opts *queue.Options) (queue.Receipt, error) {
	if err := (queue.ClientConfig{}).Check(t, opts); err != nil {
		return queue.Receipt{}, err
	}
	if err := ctx.Err(); err != nil {
		return queue.Receipt{}, fmt.Errorf("queue: enqueue %s: %w", t.Kind(), err)
	}
	if r.Err != nil {
		return queue.Receipt{}, fmt.Errorf("queue: enqueue %s: %w", t.Kind(), r.Err)
	}
	var o queue.Options
	if opts != nil {
		o = *opts
	}
	o.Queue, o.TaskID = cmp.Or(o.Queue, "default"), cmp.Or(o.TaskID, uuid.NewString())
	payload, err := json.Marshal(t)
	if err != nil {
		return queue.Receipt{}, fmt.Errorf("%s: payload: %w", t.Kind(), err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids, r.unique, r.debounced = make(map[string]bool), make(map[string]bool), make(map[string]string)
	}
	unique, isUnique := fmt.Sprintf("%q %q %q", o.Queue, t.Kind(), payload), o.Unique || o.UniqueFor > 0
	if isUnique && r.unique[unique] {
		return queue.Receipt{}, fmt.Errorf("%s: %w", t.Kind(), queue.ErrDuplicate)
	}
	id := fmt.Sprintf("%q %q", o.Queue, o.TaskID)
	if r.ids[id] {
		return queue.Receipt{}, fmt.Errorf("%s: %w", t.Kind(), queue.ErrTaskIDConflict)
	}
	r.ids[id] = true
	if isUnique {
		r.unique[unique] = true
	}
	replaced := r.replace(t, o)
	r.jobs = append(r.jobs, queue.Job{Task: t, Options: &o})
	return queue.Receipt{ID: o.TaskID, Queue: o.Queue, Replaced: replaced}, nil
}

// replace drops the task whose place a debounced one takes, and returns its id.
func (r *Recorder) replace(t queue.Task, o queue.Options) (id string) {
	if o.Debounce == "" {
		return ""
	}
	resource := ""
	if g, ok := t.(queue.Guarded); ok {
		resource = g.Resource()
	}
	key := fmt.Sprintf("%q %q %q %q", o.Queue, t.Kind(), resource, o.Debounce)
	id = r.debounced[key]
	r.debounced[key] = o.TaskID
	r.jobs = slices.DeleteFunc(r.jobs, func(j queue.Job) bool { return j.Options.Queue == o.Queue && j.Options.TaskID == id })
	return id
}

// EnqueueBatch enqueues jobs one after the other, as queue.Client does.
func (r *Recorder) EnqueueBatch(ctx context.Context, jobs []queue.Job) ([]queue.Result, error) {
	results := make([]queue.Result, len(jobs))
	for i, job := range jobs {
		results[i].Receipt, results[i].Err = r.Enqueue(ctx, job.Task, job.Options)
	}
	if r.Err != nil {
		return results, r.Err
	}
	return results, ctx.Err()
}

// Jobs returns what has been kept, in order, with its queue and id filled in.
func (r *Recorder) Jobs() []queue.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs)
}

// Reset forgets everything.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs, r.ids, r.unique, r.debounced = nil, nil, nil, nil
}
