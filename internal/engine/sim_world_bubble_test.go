package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// lockPrefix is what the keys of locks begin with.
const lockPrefix = "lock:"

// A world is a simulation: a Redis, servers, tasks, and what goes wrong. One lock guards all of it, also the Redis. So
// what holds the lock happens at one moment.
type world struct {
	*plan

	redis   *simRedis
	start   time.Time
	wg      sync.WaitGroup
	over    context.Context //nolint:containedctx // ends with the seed
	end     context.CancelFunc
	members []*member // by number; nil for one that is down
	started int       // how many servers were
	bells   []*bell

	mu      sync.Mutex
	trace   []string
	failure string
	calm    bool // no more faults
	steps   int

	model
	kept       *model // as it was at the snapshot
	jobs       map[string]*job
	order      []*job           // as they were enqueued
	runs       []*run           // of handlers that have not returned
	returned   map[string]error // what handlers returned, by attempt
	starts     map[string]bool  // attempts whose handlers have started
	foreigners map[string]string
	back       time.Duration // by how much the clock has stepped back
	forward    time.Duration // and forward
	jumped     time.Time     // when it last did so by more than a lease has to spare
	failovers  int
	lastMove   time.Time // when something was settled or begun
}

// A model is what the data in Redis should say.
type model struct {
	tasks             map[string]task     // by id
	attempts          map[string]attempt0 // by name
	processed, failed map[string]int      // by queue
	fences            map[string]int64    // by resource
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.tasks), maps.Clone(m.attempts), maps.Clone(m.processed), maps.Clone(m.failed), maps.Clone(m.fences)}
}

// A task is what should be in Redis of a job.
type task struct {
	state   string // "live", "done", "kept", "archived", "deleted"
	retried int
	moved   bool // it is not where it was enqueued in pending
	hold    hold
}

// An attempt0 is an attempt as the steps have begun it.
type attempt0 struct {
	id, resource string
	lock         string // the key
	ticket       int64
	at           time.Time // when it took its lock
	settled      bool
	first        string // the attempt under whose lock this one runs, "" for none
	unheard      bool   // begun by a copy of a step that was answered before
}

// A job is a task as it was made.
type job struct {
	n               int
	id, queue       string
	resource, field string // what the program says, and what the client wrote
	kind            string
	retries         int
	timeout         int64
	unique          string
	retention       int64
	priority        int
	begun           int // how often a handler was called
	arrival         int // as the how manieth it was enqueued
}

// A run is a call of a handler.
type run struct {
	member   *member
	job      *job
	attempt  string
	resource string
	ctx      context.Context //nolint:containedctx // the handler's
	suspect  bool            // its lock was lost by what no program can see
}

func newWorld(p *plan, edit func(string) string) *world {
	w := &world{
		plan: p, redis: newSimRedis(edit, p.tables), start: time.Now(),
		model: model{make(map[string]task), make(map[string]attempt0), make(map[string]int), make(map[string]int), make(map[string]int64)},
		jobs:  make(map[string]*job), returned: make(map[string]error), starts: make(map[string]bool),
		foreigners: make(map[string]string),
		members:    make([]*member, len(p.servers)),
	}
	w.redis.offset = p.skew
	w.over, w.end = context.WithCancel(context.Background())
	return w
}

func (w *world) random(numbers ...uint64) interface {
	Float64() float64
	IntN(int) int
	Int64N(int64) int64
} {
	return random(append([]uint64{w.seed}, numbers...)...)
}

// logf adds a line to the trace. The caller holds the lock.
func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%10.6f ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

// failf keeps the first thing that is wrong. The caller holds the lock.
func (w *world) failf(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.logf("WRONG: %s", w.failure)
	}
}

// play runs the seed. It returns what went wrong.
func (w *world) play() {
	defer w.redis.close()
	for i := range w.servers {
		w.startServer(i)
	}
	w.wg.Go(w.upkeep)
	for _, e := range w.events {
		if !w.sleepUntil(e.at) {
			break
		}
		w.mu.Lock()
		w.logf("-- %s", e.name)
		w.mu.Unlock()
		e.run(w)
	}
	if w.sleepUntil(w.length) {
		w.finish()
	}
	for _, n := range w.members {
		n.kill()
	}
	w.end()
	w.wg.Wait()
	time.Sleep(time.Minute) // for what the loops have started
}

// sleepUntil sleeps, and returns false once something is wrong.
func (w *world) sleepUntil(at time.Duration) bool {
	for {
		w.mu.Lock()
		failed := w.failure != ""
		w.mu.Unlock()
		left := time.Until(w.start.Add(at))
		if failed {
			return false
		}
		if left <= 0 {
			return true
		}
		time.Sleep(min(left, time.Second))
	}
}

// finish lets everything come to its end.
func (w *world) finish() {
	w.mu.Lock()
	w.calm = true
	w.logf("-- calm")
	for _, queue := range w.queues {
		w.redis.run("DEL", taskredis.PausedKey(queue))
	}
	for _, resource := range w.resources { // a failover may have brought back what another program had left
		if value, _ := w.redis.do("GET", lockPrefix+resource).(string); !strings.HasPrefix(value, "siding") {
			w.redis.do("DEL", lockPrefix+resource)
		}
	}
	w.mu.Unlock()
	const most = 10 * time.Minute
	until := time.Since(w.start) + most
	for {
		for i := range w.members {
			w.startServer(i)
		}
		if w.finished() {
			break
		}
		w.operateStopped()
		if at := time.Since(w.start) + 250*time.Millisecond; !w.sleepUntil(at) {
			return
		} else if at > until {
			w.mu.Lock()
			w.failf("tasks have not ended %v after the last fault: %s", most, w.unfinished())
			w.mu.Unlock()
			return
		}
	}
	w.mu.Lock()
	w.logf("-- all tasks have ended")
	w.mu.Unlock()
	rest := 2*time.Second + w.slowest // for late copies of calls
	if w.holds > 0 {
		rest += lookHeld + w.back // then also the last tasks that have held a line have left it, whose time comes later if the clock has stepped back
	}
	if w.sleepUntil(time.Since(w.start) + rest) {
		w.checkEnd()
	}
}

func (w *world) unfinished() string {
	text := ""
	for id, t := range w.tasks {
		if t.state == "live" {
			key := taskredis.TaskKey(w.jobs[id].queue, id)
			text += fmt.Sprintf("\n%s:", id)
			for _, field := range []string{"state", "siding_attempt", "siding_lock", "siding_ticket", "siding_until", "siding_crashes"} {
				text += " " + w.redis.db.HGet(key, field)
			}
		}
	}
	return text
}

func (w *world) finished() bool {
	w.mu.Lock()
	for _, t := range w.tasks {
		if t.state == "live" || t.hold.resources != "" && !t.hold.gone {
			w.mu.Unlock()
			return false
		}
	}
	w.mu.Unlock()
	for _, n := range w.members {
		idle := false
		if err := n.loop.do(n.ctx, func() { idle = n.loop.running == 0 && len(n.loop.attempts) == 0 && !n.loop.sending() }); err != nil || !idle {
			return false
		}
	}
	return true
}

// enqueue does what a client does.
func (w *world) enqueue(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := taskredis.Message{
		Type: j.kind, ID: j.id, Queue: j.queue, Retry: j.retries, Timeout: j.timeout, Payload: []byte(j.resource),
		UniqueKey: j.unique, Retention: j.retention,
	}
	fields := []string{"HSET", taskredis.TaskKey(j.queue, j.id), "msg", string(m.Encode()), "state", "pending", "pending_since", "1"}
	if j.field != "" {
		fields = append(fields, "siding_resource", j.field)
	}
	if j.priority > 0 {
		fields = append(fields, "siding_priority", strconv.Itoa(j.priority))
	}
	w.redis.run(fields...)
	w.redis.do("LPUSH", taskredis.PendingKey(j.queue), j.id)
	w.redis.do("SADD", "asynq:queues", j.queue)
	if j.unique != "" {
		w.redis.do("SET", j.unique, j.id, "EX", "86400")
	}
	if w.random(forMisc, uint64(j.n)).IntN(4) > 0 {
		w.notify(j.queue)
	}
	j.arrival = len(w.jobs)
	w.jobs[j.id], w.order = j, append(w.order, j)
	w.tasks[j.id] = task{state: "live"}
	w.changed()
}

func (w *world) notify(queue string) {
	key := taskredis.NotifyKey(queue)
	if w.redis.do("EXISTS", key) == int64(0) {
		w.redis.do("LPUSH", key, "1")
	}
}

// operate does what an operator does from asynq's dashboard.
func (w *world) operate(what, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[id]
	if j == nil || w.tasks[id].state == "" {
		return
	}
	t, key := w.tasks[id], taskredis.TaskKey(j.queue, id)
	w.redis.tick()
	state, _ := w.redis.do("HGET", key, "state").(string)
	if state == "" || state == "active" || what == "run" && state == "pending" || what == "archive" && state == "archived" {
		w.logf("   it is %q", state)
		return
	}
	if state == "pending" {
		w.redis.do("LREM", taskredis.PendingKey(j.queue), "0", id)
	} else {
		w.redis.do("ZREM", "asynq:{"+j.queue+"}:"+state, id)
	}
	t.touched(what, w.redis.do("HGET", key, "siding_held") == "stop")
	switch what {
	case "delete":
		if j.unique != "" {
			w.redis.do("DEL", j.unique)
		}
		w.redis.do("DEL", key)
		t.state = "deleted"
	case "run":
		w.redis.do("LPUSH", taskredis.PendingKey(j.queue), id)
		w.redis.do("HSET", key, "state", "pending")
		t.state, t.moved = "live", true
	case "archive":
		w.redis.do("ZADD", taskredis.ArchivedKey(j.queue), strconv.FormatInt(time.Now().Unix(), 10), id)
		w.redis.do("HSET", key, "state", "archived")
		t.state = "archived"
	}
	w.tasks[id] = t
	w.changed()
}

// runAll has all tasks run that are in retry sets, as asynq's RunAllRetryTasks does.
func (w *world) runAll() {
	w.mu.Lock()
	waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(w.jobs)), func(id string) bool {
		return w.redis.do("HGET", taskredis.TaskKey(w.jobs[id].queue, id), "state") != "retry"
	})
	w.mu.Unlock()
	for _, id := range waiting {
		w.operate("run", id)
	}
}

func (w *world) pause(queue string, paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if paused {
		w.redis.run("SET", taskredis.PausedKey(queue), "1")
	} else {
		w.redis.run("DEL", taskredis.PausedKey(queue))
	}
}

// foreignTakes has another program take a lock, if it is free.
func (w *world) foreignTakes(resource, token string, d time.Duration, forever bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	args := []string{"SET", lockPrefix + resource, token, "NX"}
	if !forever {
		args = append(args, "PX", strconv.FormatInt((d+time.Millisecond).Milliseconds(), 10))
	}
	if w.redis.run(args...) == nil {
		w.logf("   it is busy")
		return
	}
	w.foreigners[resource] = token
	w.nobodyRuns(resource, "another program has it", 0)
}

func (w *world) foreignLeaves(resource, token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.redis.run("GET", lockPrefix+resource) == token {
		w.redis.do("DEL", lockPrefix+resource)
	}
}

func (w *world) snapshot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis.snapshot()
	w.kept = w.clone()
}

// failover has Redis forget what was written since the snapshot.
func (w *world) failover() {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(map[string]int64)
	holds := func(r *run) int64 { // for so long, ms, the first of its locks
		left := int64(math.MaxInt64)
		for _, key := range store.SplitLocks(w.attempts[r.attempt].lock) {
			if w.redis.run("GET", key) != r.attempt {
				return 0
			}
			left = min(left, w.redis.do("PTTL", key).(int64)) //nolint:forcetypeassert // it is
		}
		return left
	}
	for _, r := range w.runs {
		held[r.attempt] = holds(r)
	}
	w.redis.restore()
	w.model = *w.kept
	for _, r := range w.runs {
		if holds(r) < held[r.attempt] {
			r.suspect = true
		}
	}
	w.failovers++
	w.changed()
}

// clock steps Redis' clock.
func (w *world) clock(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis.step(by)
	if by < 0 {
		w.back -= by
	} else if w.forward += by; w.forward >= w.margin {
		w.jumped = time.Now()
		for _, r := range w.runs {
			r.suspect = true
		}
	}
}

// A member is a server, from its start to its death.
type member struct {
	w            *world
	n            int
	name         string
	ctx          context.Context //nolint:containedctx // the loop's
	cancel       context.CancelFunc
	gone         chan struct{} // closed when it dies
	dead         bool
	stopped      bool // it shuts down
	loop         *loop
	steps        *taskredis.Steps
	stalled      time.Time // its calls hang until then
	holdsAnswers bool      // the answers do, rather than the calls
	tries        map[stepID]int
	calls        int
	refusals     int
	taken        map[stepID][]string // attempts that a step has begun
	told         map[stepID]bool     // steps that were answered
}

// delay is after what time a task is tried again.
func (w *world) delay(retried int, _ error, t *asynq.Task) time.Duration {
	d := between(random(w.seed, forDelay, uint64(retried), uint64(len(t.Payload()))), 100*time.Millisecond, 5*time.Second)
	if t.Type() != "kind" {
		d *= 4 // also for longer than nobody looks at a held line
	}
	return d
}

func (w *world) startServer(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.members[i]; n != nil && !n.dead && n.ctx.Err() == nil {
		return
	}
	w.started++
	n := &member{
		w: w, n: w.started, name: fmt.Sprintf("s%d", w.started), gone: make(chan struct{}),
		tries: make(map[stepID]int), taken: make(map[stepID][]string), told: make(map[stepID]bool),
	}
	w.members[i] = n
	n.ctx, n.cancel = context.WithCancel(context.Background())
	config := Config{
		Queues: w.weights, Strict: w.strict, Concurrency: w.servers[i],
		Prefix: lockPrefix, TTL: w.ttl, RenewEvery: w.renew, SafetyMargin: w.margin, FenceTTL: 5 * w.ttl,
		Handler: n.handle, ShutdownTimeout: 8 * time.Second, Overrun: w.overrun, Crashes: w.crashes, Losses: 3,
		OnFailure: onFailure, RetryDelay: w.delay, Logger: slog.New(simLog{n}),
	}.withDefaults()
	cfg := &config
	if w.plain > 0 || w.sets > 0 {
		cfg.Need = func(m *taskredis.Message, _ string) (Need, error) {
			w.apart(m.ID, n)
			return Need{Resource: string(m.Payload)}, nil
		}
	}
	n.steps = &taskredis.Steps{
		Redis: w.redis, Session: n.name, Holder: n.name, Prefix: lockPrefix, TTL: w.ttl, FenceTTL: cfg.FenceTTL, Crashes: cfg.Crashes,
	}
	n.steps.SetRules(taskredis.Rules{Limits: w.limits})
	n.loop = newLoop(cfg, n)
	n.loop.queues.random = random(w.seed, forQueues, uint64(n.n)).IntN
	for _, p := range n.loop.scopes {
		p.clock.set(w.redis.now().UnixMicro(), time.Now())
	}
	b := &bell{n: n}
	l := &listener{
		redis: b, idle: n.idle, queues: w.queues, tell: n.loop.notified, armed: n.loop.scopes[""].armed,
		wake: "siding:wake:" + n.name, logger: cfg.Logger,
	}
	w.wg.Go(func() { n.loop.run(n.ctx) })
	w.wg.Go(func() { l.run(n.ctx) })
	w.wg.Go(n.pulse)
}

// pulse has the server look for tasks once a second, as upkeep does, and looks whether its loop blocks.
func (n *member) pulse() {
	const every = time.Second
	time.Sleep(time.Duration(random(n.w.seed, forMisc, 1<<32+uint64(n.n)).Int64N(int64(every))))
	for {
		n.loop.hasFound(n.w.queues...)
		asked := time.Now()
		if n.loop.do(n.ctx, n.check) != nil {
			return
		}
		if blocked := time.Since(asked); blocked > 0 {
			n.w.mu.Lock()
			n.w.failf("the loop of %s has blocked for %v", n.name, blocked)
			n.w.mu.Unlock()
		}
		select {
		case <-time.After(every):
		case <-n.ctx.Done():
			return
		}
	}
}

// check looks at the state of the loop. The loop calls it.
func (n *member) check() {
	running := 0
	for _, a := range n.loop.attempts {
		if a.ended.IsZero() && a.member == nil {
			running++
		}
	}
	if n.loop.running != running || running > n.loop.cfg.Concurrency {
		n.w.mu.Lock()
		n.w.failf("%s: want %d slots taken, of %d, have %d", n.name, running, n.loop.cfg.Concurrency, n.loop.running)
		n.w.mu.Unlock()
	}
}

// kill ends a server at once: nothing of it is heard of any more, but for a call that is on its way.
func (n *member) kill() {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.dead {
		return
	}
	n.dead = true
	n.cancel()
	close(n.gone)
	w.runs = slices.DeleteFunc(w.runs, func(r *run) bool { return r.member == n })
}

// shutdown has a server stop as Server.Shutdown does, for which it has so long. Its process lives for some seconds more.
func (w *world) shutdown(i int, patience time.Duration) {
	w.mu.Lock()
	n := w.members[i]
	stopped := n.stopped
	n.stopped = true
	w.mu.Unlock()
	if stopped {
		return
	}
	w.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, patience)
		defer cancel()
		s := Server{cfg: *n.loop.cfg, loop: n.loop}
		if s.Stop(ctx) == nil {
			select {
			case <-n.loop.drained:
			case <-time.After(patience / 2):
				_ = n.loop.do(ctx, n.loop.abort)
				select {
				case <-n.loop.drained:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}
		n.cancel()
		select {
		case <-time.After(20 * time.Second):
		case <-n.gone:
			return
		case <-w.over.Done():
		}
		n.kill()
	})
}

// stall has the calls of a server, or of all, take long.
func (w *world) stall(i int, d time.Duration, answers bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, n := range w.members {
		if n != nil && (k == i || i == len(w.members)) {
			n.stalled, n.holdsAnswers = time.Now().Add(d), answers
		}
	}
}

// A fate is what becomes of a call.
type fate struct {
	out      time.Duration // until Redis runs it
	back     time.Duration // until the answer is there
	lost     bool          // Redis never runs it
	silent   bool          // the answer is lost
	again    time.Duration // when Redis runs it once more; 0 for never
	refused  string
	patience time.Duration // of the client, which then says that it does not know
	survives bool          // the death of its server
}

// fate draws what becomes of a call. The caller holds the lock.
func (n *member) fate(kind, a, b uint64) fate {
	w := n.w
	r := random(w.seed, kind, uint64(n.n), a, b)
	f := fate{
		out: between(r, 20*time.Microsecond, time.Millisecond), back: between(r, 20*time.Microsecond, time.Millisecond),
		patience: 3*time.Second + time.Duration(r.Int64N(int64(10*time.Second))), survives: r.IntN(4) == 0,
	}
	if w.calm {
		return f
	}
	if r.Float64() < w.slow {
		f.out = between(r, time.Millisecond, w.slowest)
	}
	if r.Float64() < w.slow {
		f.back = between(r, time.Millisecond, w.slowest)
	}
	f.lost, f.silent = r.Float64() < w.lost, r.Float64() < w.silent
	if r.Float64() < w.twice {
		f.again = f.out + between(r, 10*time.Microsecond, w.slowest)
	}
	if r.Float64() < w.refused {
		f.refused = []string{
			"OOM command not allowed when used memory > 'maxmemory'.", "READONLY You can't write against a read only replica.",
			"LOADING Redis is loading the dataset in memory", "NOPERM this user has no permissions to run the 'evalsha' command",
		}[min(3, r.IntN(20))]
	}
	if stall := time.Until(n.stalled); stall > 0 {
		if n.holdsAnswers {
			f.back += stall
		} else {
			f.out += stall
		}
	}
	return f
}

// errNetwork is the error of a call that nobody has answered.
var errNetwork = errors.New("i/o timeout")

// A reply is what came back of a call.
type reply struct {
	value any
	err   error
}

// call makes a call that run executes, at the moment at which Redis does, with the lock.
func (n *member) call(ctx context.Context, f fate, run func() (any, error)) (any, error) {
	w := n.w
	once := func(at time.Duration) (r reply, answered bool) {
		time.Sleep(at)
		w.mu.Lock()
		defer w.mu.Unlock()
		if f.lost || n.dead && !f.survives || w.failure != "" {
			return r, false
		}
		if f.refused != "" && !w.calm {
			w.logf("%s is refused: %s", n.name, f.refused)
			n.refusals++
			return reply{nil, redisError(f.refused)}, true
		}
		value, err := run()
		w.changed()
		return reply{value, err}, !f.silent
	}
	if !f.lost && !f.silent && f.again == 0 && f.out+f.back < 2*time.Second {
		r, ok := once(f.out)
		if !ok {
			return nil, errNetwork
		}
		time.Sleep(f.back)
		return r.value, r.err
	}
	replies := make(chan reply, 2)
	for _, at := range []time.Duration{f.out, f.again} {
		if at > 0 {
			w.wg.Go(func() {
				if r, ok := once(at); ok {
					time.Sleep(f.back)
					replies <- r
				}
			})
		}
	}
	select {
	case r := <-replies:
		return r.value, r.err
	case <-time.After(f.patience):
		return nil, errNetwork
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A stepID is a step of a server.
type stepID struct {
	lane   int
	number int64
}

func idOf(s *taskredis.Step) stepID { return stepID{s.Lane, s.Number} }

// Step makes member a caller.
func (n *member) Step(ctx context.Context, s *taskredis.Step) (*taskredis.Answer, error) {
	n.w.mu.Lock()
	n.tries[idOf(s)]++
	try := n.tries[idOf(s)]
	f := n.fate(forStep, uint64(s.Number*taskredis.Lanes)+uint64(s.Lane), uint64(try))
	n.w.mu.Unlock()
	value, err := n.call(ctx, f, func() (any, error) {
		a, err := n.steps.Step(context.Background(), s)
		n.stepped(s, try, a, err)
		return a, err
	})
	if err != nil {
		return nil, err
	}
	a := value.(*taskredis.Answer) //nolint:forcetypeassert // it is
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.answer(s, try, a)
	return a, nil
}

func (n *member) Renew(ctx context.Context, scope string, attempts []taskredis.Name) ([]bool, error) {
	n.w.mu.Lock()
	n.calls++
	f := n.fate(forRenew, uint64(n.calls), 0)
	n.w.mu.Unlock()
	value, err := n.call(ctx, f, func() (any, error) {
		kept, err := n.steps.Renew(context.Background(), scope, attempts)
		var texts []string
		for i, name := range attempts {
			if err == nil {
				texts = append(texts, fmt.Sprintf(" %s:%v", short(name.Attempt), kept[i]))
			}
		}
		slices.Sort(texts) // the loop has them in any order
		n.w.logf("%s renews%s%s", n.name, strings.Join(texts, ""), orError(err))
		n.w.checkState()
		return kept, err
	})
	if err != nil {
		return nil, err
	}
	return value.([]bool), nil //nolint:forcetypeassert // it is
}

func (n *member) Began(context.Context, taskredis.Name, bool) (bool, error) { return true, nil }

func (n *member) Notify(ctx context.Context, queues ...string) error {
	n.w.mu.Lock()
	n.calls++
	f := n.fate(forRenew, uint64(n.calls), 1)
	n.w.mu.Unlock()
	_, err := n.call(ctx, f, func() (any, error) { return nil, n.steps.Notify(context.Background(), queues...) })
	return err
}

func (n *member) idle(ctx context.Context, queues ...string) error {
	n.w.mu.Lock()
	n.calls++
	f := n.fate(forRenew, uint64(n.calls), 2)
	n.w.mu.Unlock()
	_, err := n.call(ctx, f, func() (any, error) { return nil, n.steps.Idle(context.Background(), queues...) })
	return err
}

func short(attempt string) string { return strings.TrimPrefix(attempt, "siding:") }

func orError(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// A bell is what a listener waits with.
type bell struct {
	redis.Cmdable // nil: nothing else is called

	n    *member
	keys []string
	rung chan string
}

// BLPop waits for a notification.
func (b *bell) BLPop(ctx context.Context, timeout time.Duration, keys ...string) *redis.StringSliceCmd {
	n, w := b.n, b.n.w
	w.mu.Lock()
	n.calls++
	f := n.fate(forBell, uint64(n.calls), 0)
	w.mu.Unlock()
	if f.refused != "" {
		return redis.NewStringSliceResult(nil, redisError(f.refused))
	}
	time.Sleep(min(f.out, timeout))
	w.mu.Lock()
	b.keys, b.rung = keys, make(chan string, 1)
	w.bells = append(w.bells, b)
	w.ring()
	rung, calls := b.rung, n.calls
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.bells = slices.DeleteFunc(w.bells, func(other *bell) bool { return other == b })
		w.mu.Unlock()
	}()
	lost := random(w.seed, forBell, uint64(n.n), uint64(calls)).Float64() < n.w.plan.bells
	select {
	case key := <-rung:
		time.Sleep(min(f.back, timeout))
		if lost {
			return redis.NewStringSliceResult(nil, errNetwork)
		}
		return redis.NewStringSliceResult([]string{key, "1"}, nil)
	case <-time.After(timeout):
		return redis.NewStringSliceResult(nil, redis.Nil)
	case <-ctx.Done():
		return redis.NewStringSliceResult(nil, ctx.Err())
	}
}

// ring passes notifications to those who wait. The caller holds the lock.
func (w *world) ring() {
	for _, queue := range w.queues {
		key := taskredis.NotifyKey(queue)
		if !w.redis.db.Exists(key) {
			continue
		}
		for i, b := range w.bells {
			if slices.Contains(b.keys, key) && w.redis.do("LPOP", key) != nil {
				b.rung <- key
				w.bells = slices.Delete(w.bells, i, i+1)
				break
			}
		}
	}
}

// upkeep does from time to time what servers do beside their loops.
func (w *world) upkeep() {
	for {
		select {
		case <-w.over.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
		w.mu.Lock()
		w.redis.tick()
		for _, queue := range w.queues {
			w.forwardDue(queue)
			w.recoverCrashed(queue)
		}
		w.changed()
		w.mu.Unlock()
	}
}

// forwardDue moves the tasks whose time has come to pending.
func (w *world) forwardDue(queue string) {
	now := strconv.FormatInt(w.redis.now().Unix(), 10)
	due, _ := w.redis.do("ZRANGEBYSCORE", taskredis.RetryKey(queue), "-inf", now).([]any)
	for _, one := range due {
		id := one.(string) //nolint:forcetypeassert // it is
		w.logf("forward %s", id)
		w.redis.do("ZREM", taskredis.RetryKey(queue), id)
		w.redis.do("LPUSH", taskredis.PendingKey(queue), id)
		w.redis.do("HSET", taskredis.TaskKey(queue, id), "state", "pending")
		t := w.tasks[id]
		t.moved = true
		w.tasks[id] = t
		w.notify(queue)
	}
}

// recoverCrashed ends the attempts of servers that have died, which a step leaves to upkeep.
func (w *world) recoverCrashed(queue string) {
	cfg := Config{OnFailure: onFailure, RetryDelay: w.delay}.withDefaults()
	u := &upkeep{cfg: &cfg, calls: &taskredis.Upkeep{Redis: simClient{redis: w.redis}, Crashes: w.crashes}, logger: slog.New(slog.DiscardHandler)}
	l, err := u.calls.Leases(context.Background(), queue, 0)
	for _, c := range l.Crashed {
		key := taskredis.TaskKey(queue, c.ID)
		attempt, retried := w.redis.db.HGet(key, "siding_attempt"), w.tasks[c.ID].retried
		ended, failed := u.end(context.Background(), c, time.Now())
		err = errors.Join(err, failed)
		if !ended {
			continue
		}
		w.processed[queue]++
		w.failed[queue]++
		t, j, state := w.tasks[c.ID], w.jobs[c.ID], w.redis.db.HGet(key, "state")
		w.logf("recover %s: %s", c.ID, state)
		t.moved = true
		o := taskredis.Outcome{Name: taskredis.Name{ID: c.ID, Attempt: attempt}, Kind: taskredis.Retry}
		if state == "retry" {
			t.retried++
			o.After = w.delay(retried, nil, asynq.NewTask(j.kind, []byte(j.resource)))
		} else {
			t.state, o.Kind = "archived", taskredis.Archive
		}
		t.hold = w.holdOf(&o, onFailure(&taskredis.Message{Type: j.kind}))
		w.tasks[c.ID] = t
	}
	if err != nil {
		w.failf("leases that have ended: %v", err)
	}
}

// apart sleeps for less than a microsecond, so that what goroutines of one moment do has the same order each time.
func (w *world) apart(name string, n *member) {
	h := uint64(n.n)
	for _, b := range []byte(name) {
		h = mix(h, uint64(b))
	}
	time.Sleep(time.Duration(1 + h%1000))
}

// handle is the handler of a server.
func (n *member) handle(ctx context.Context, t *Task) (err error) {
	w := n.w
	w.apart(t.Taken.Attempt, n)
	if err := t.Begin(ctx); err != nil {
		return err
	}
	r, ok := w.begins(ctx, n, t)
	if !ok {
		return nil
	}
	what := random(w.seed, forHandler, uint64(r.job.n), uint64(r.job.begun))
	result := errors.New("it has panicked")
	defer func() { w.ends(r, result) }()
	if t.First() != nil {
		result = t.Join(t.ID)
		w.apart(t.Taken.Attempt, n) // from the others of its batch
		return result
	}
	if what := random(w.seed, forBatches, uint64(r.job.n), uint64(r.job.begun)); what.Float64() < w.batches {
		members := t.More(1 + what.IntN(4)).Joined(ctx)
		defer func() {
			for _, m := range members {
				switch what.IntN(8) {
				case 0:
					m.End(errors.New("no luck"))
				case 1: // as the first
				default:
					m.End(ctx.Err())
				}
			}
		}()
	}
	d := between(what, 100*time.Microsecond, time.Second)
	if what.Float64() < w.long {
		d = between(what, time.Second, min(2*w.ttl, 20*time.Second))
	}
	mode := what.IntN(10)
	if what.Float64() >= w.fails {
		mode = 100
	}
	stubborn := time.Duration(what.IntN(1000000))
	if what.Float64() < w.stubborn {
		stubborn = between(what, time.Millisecond, 5*time.Second)
	}
	w.mu.Lock()
	if w.calm {
		d, mode = d%(300*time.Millisecond), 100
	}
	w.mu.Unlock()
	select {
	case <-time.After(d):
	case <-n.gone:
		return nil
	case <-ctx.Done():
		select {
		case <-time.After(stubborn):
		case <-n.gone:
			return nil
		}
		if mode == 100 && what.IntN(2) == 0 {
			result = ctx.Err()
			return result
		}
	}
	switch mode {
	case 0:
		panic("a text")
	case 1:
		panic(errors.New("an error"))
	case 2:
		runtime.Goexit()
	case 3, 4:
		result = &SnoozeError{Err: errors.New("not now"), After: between(what, time.Millisecond, 3*time.Second)}
	case 5:
		result = fmt.Errorf("no luck: %w", asynq.SkipRetry)
	case 6:
		result = fmt.Errorf("no more: %w", asynq.RevokeTask)
	case 7, 8, 9:
		result = errors.New("no \xff luck")
	default:
		result = nil
	}
	return result
}

// A simLog writes what a server logs into the trace.
type simLog struct{ n *member }

func (simLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l simLog) WithAttrs([]slog.Attr) slog.Handler             { return l }
func (l simLog) WithGroup(string) slog.Handler                  { return l }

func (l simLog) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // as slog wants it
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			text += " " + a.String()
		}
		return true
	})
	l.n.w.mu.Lock()
	defer l.n.w.mu.Unlock()
	l.n.w.logf("%s says: %s", l.n.name, text)
	return nil
}

// scoreOf returns a score of a sorted set.
func (w *world) scoreOf(key, member string) (float64, bool) {
	set, err := w.redis.db.SortedSet(key)
	if err != nil {
		return math.NaN(), false
	}
	score, ok := set[member]
	return score, ok
}
