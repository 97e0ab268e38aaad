package model_test

import (
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify/model"
)

// offer is for how long a lock is offered to the oldest line alone, in µs.
const offer = 50_000

// plainProgram is what a lock holds that a program of another kind has taken.
const plainProgram = "of a plain program"

// A twin is a state of the model, and a Redis that should be in the same one.
type twin struct {
	t     *testing.T
	m     *model.Model
	edit  func(script string) string
	state model.State
	err   error // the first one

	db        *miniredis.Miniredis
	rdb       *redis.Client
	inspector *asynq.Inspector
	now       time.Time
	processes []*process
	loaded    map[string]string
	attempts  map[int]*attempt // by their places in the model's state
	sessions  int
}

// An attempt is what the scripts have said of one.
type attempt struct {
	taskredis.Name

	message []byte
}

// scripts runs other scripts than those that it is told to.
type scripts struct {
	*redis.Client

	edit   func(script string) string // nil for none
	loaded map[string]string          // the sums of edited scripts by those of the real ones
}

func (s scripts) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	sum := fmt.Sprintf("%x", sha1.Sum([]byte(script)))
	if s.edit != nil {
		script = s.edit(script)
	}
	s.loaded[sum] = s.ScriptLoad(ctx, script).Val()
	return s.Client.EvalSha(ctx, s.loaded[sum], keys, args...)
}

func (s scripts) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return s.Client.EvalSha(ctx, cmp.Or(s.loaded[sum], sum), keys, args...)
}

// A process is a server that makes steps.
type process struct {
	*taskredis.Steps

	number, heard, answered int64 // of the last step; what Redis knows after it; what this process has heard of that
	sent, late              *taskredis.Step
	lateOf                  *process // which has sent the late one
}

func newTwin(t *testing.T, m *model.Model, edit func(string) string) *twin {
	t.Helper()
	w := &twin{t: t, m: m, edit: edit, state: m.Start(), db: miniredis.NewMiniRedis(), now: time.Unix(1_800_000_000, 0), attempts: map[int]*attempt{}, loaded: map[string]string{}}
	expect.OK(t, w.db.Start())
	w.db.SetTime(w.now)
	w.rdb = redis.NewClient(&redis.Options{Addr: w.db.Addr()})
	w.inspector = asynq.NewInspectorFromRedisClient(w.rdb)
	for range m.Servers {
		w.processes = append(w.processes, w.newProcess())
	}
	return w
}

func (w *twin) close() {
	_ = w.rdb.Close()
	w.db.Close()
}

func (w *twin) newProcess() *process {
	w.sessions++
	return &process{Steps: &taskredis.Steps{
		Redis: scripts{w.rdb, w.edit, w.loaded}, Session: fmt.Sprint("s", w.sessions), Holder: "test", Prefix: "lock:", TTL: 15 * time.Second, FenceTTL: time.Minute, Crashes: model.FreeCrashes,
	}}
}

// must keeps the first error.
func (w *twin) must(err error) {
	if w.err == nil {
		w.err = err
	}
}

// The names of the model's queues, tasks and locks.
func queueOf(q uint8) string  { return fmt.Sprint("q", q) }
func lockOf(r uint8) string   { return fmt.Sprint("lock:r", r) }
func idOf(id model.ID) string { return fmt.Sprint(id) }

// locksOf returns the locks of a task as scripts have them, and resourceOf what its client has written.
func locksOf(spec model.Spec) string {
	var names []string
	for _, r := range spec.Locks() {
		names = append(names, lockOf(r))
	}
	return strings.Join(names, "\n")
}

func resourceOf(spec model.Spec) string {
	resource := strings.ReplaceAll("\n"+locksOf(spec), "\nlock:", "\n")
	if spec.Resource == model.Both {
		return resource
	}
	return resource[1:]
}

// kindOf returns the kind of a task: those of a batch have the same one.
func kindOf(spec model.Spec) string {
	if spec.Batched {
		return "batched"
	}
	return "kind"
}

func (w *twin) micros() float64      { return float64(w.now.UnixMicro()) }
func (w *twin) ctx() context.Context { return w.t.Context() }

// can reports whether the scripts can make a move of the model.
func (w *twin) can(move model.Move) bool {
	switch move.Event {
	case model.Upkeep:
		return false
	case model.LeaseEnds: // crashes of tasks without a lock are upkeep's
		spec := w.m.Tasks[move.Task-1]
		return w.state.Tasks[move.Task-1].Known || spec.Resource == model.Both && !spec.Plain
	case model.DashboardRuns, model.TimeComes: // of two that go to their places in one step the model does not know whose lock is looked at first
		return !slices.ContainsFunc(w.state.Tasks[:], func(t model.Task) bool { return t.Status == model.Pending && t.Ticket > 0 })
	case model.Arrive, model.ArriveAged: // after a failover the number of the copy counts, which the model does not have
		// Nor does it have who has heard of the last step: those of a batch whose lock is revoked are put back again, whatever they say.
		p := w.processes[move.Server]
		heard := w.state.Servers[move.Server].Way == model.Older && p.late.Number == p.lateOf.number
		return !w.state.Failed && (!heard || !slices.ContainsFunc(w.m.Tasks, func(s model.Spec) bool { return s.Batched }))
	default:
		return true
	}
}

// move does what the model does.
func (w *twin) move(tr model.Transition) {
	w.now = w.now.Add(10 * time.Microsecond)
	w.db.SetTime(w.now)
	move := tr.Move
	queue, lock, id := queueOf(move.Queue), lockOf(move.Resource), idOf(move.Task)
	var p *process
	if int(move.Server) < len(w.processes) {
		p = w.processes[move.Server]
	}
	switch move.Event {
	case model.Step:
		w.run(p, w.step(p, move), tr.Next)
		p.answered = p.heard
	case model.StepUnheard:
		p.sent = w.step(p, move)
		w.run(p, p.sent, tr.Next)
	case model.StepDelayed:
		p.sent = w.step(p, move)
		p.late, p.lateOf = p.sent, p
	case model.Resend:
		w.run(p, p.sent, tr.Next)
		p.answered = p.heard
	case model.HearLate:
		p.answered = p.heard
	case model.Arrive, model.ArriveAged:
		late := *p.late
		if move.Event == model.ArriveAged {
			late.Sent -= (3 * time.Second).Microseconds()
		}
		w.run(p.lateOf, &late, tr.Next)
	case model.Crash:
		next := w.newProcess()
		if tr.Next.Servers[move.Server].Way == model.Dead {
			next.late, next.lateOf = p.late, p.lateOf
		}
		w.processes[move.Server] = next
	case model.Continue:
		w.renew(p, move.Server)
	case model.Enqueue, model.EnqueueAgain:
		w.enqueue(move)
	case model.Delete:
		w.must(w.inspector.DeleteTask(queue, id))
	case model.Archive:
		w.must(w.inspector.ArchiveTask(queue, id))
	case model.DashboardRuns:
		w.must(w.inspector.RunTask(queue, id))
	case model.TimeComes:
		if w.state.Tasks[move.Task-1].Set == model.Held {
			held, over := w.db.HGet(taskredis.TaskKey(queue, id), "siding_held"), w.now.UnixMicro()-1
			w.db.HSet(taskredis.TaskKey(queue, id), "siding_held", fmt.Sprint(over))
			for _, r := range w.m.Tasks[move.Task-1].Locks() {
				if until, ok := w.score(taskredis.HeldKey(queue), lockOf(r)); ok && fmt.Sprint(int64(until)) == held { // no other task's
					w.must(expect.Err(w.db.ZAdd(taskredis.HeldKey(queue), float64(over), lockOf(r))))
				}
				w.due(move.Queue, r)
			}
		} else {
			w.must(w.inspector.RunTask(queue, id))
		}
	case model.RetryHeld:
		w.holds(taskredis.RetryHeld(w.ctx(), w.rdb, queue, id))
	case model.SkipHeld:
		w.holds(taskredis.SkipHeld(w.ctx(), w.rdb, queue, id, func(*taskredis.Message) {}))
	case model.LeaseEnds:
		w.leaseEnds(queue, id)
	case model.Expire:
		token := w.state.Locks[move.Resource].Token // also that of the other lock of a set
		for n, t := range w.state.Tasks {
			if t.Status == model.Active && w.state.Holder(t.Attempt) == token {
				w.leaseEnds(queueOf(w.m.Tasks[n].Queue), idOf(model.ID(n+1)))
			}
		}
		for r := range uint8(model.MaxResources) {
			if w.state.Locks[r].Token != token {
				continue
			}
			w.db.Del(lockOf(r))
			for q := range uint8(model.MaxQueues) {
				w.due(q, r)
			}
		}
	case model.EntryDue:
		w.due(move.Queue, move.Resource)
	case model.OfferEnds:
		for q := range uint8(model.MaxQueues) {
			if w.state.Queues[q].Ready[move.Resource] == model.Offer {
				w.must(expect.Err(w.db.ZAdd(taskredis.ReadyKey(queueOf(q)), w.micros(), lock)))
			}
		}
	case model.Unseen:
		w.db.HDel("siding:slots", queue)
	case model.Pause:
		w.must(w.inspector.PauseQueue(queue))
	case model.Unpause:
		w.must(w.inspector.UnpauseQueue(queue))
	case model.ForeignTakes:
		w.must(w.db.Set(lock, plainProgram))
	case model.ReplicaStops:
		w.copyTo()
	case model.Failover:
		w.failOver()
	case model.ForeignLeaves:
		w.db.Del(lock)
	case model.Revoke:
		value, err := w.db.Get(lock)
		w.must(err)
		w.must(w.db.Set(lock, revoked(value)))
	default: // servers and handlers alone know of the others
	}
}

// score returns the score of a member, if it is one.
func (w *twin) score(key, member string) (float64, bool) {
	members, err := w.db.SortedSet(key)
	score, ok := members[member]
	return score, ok && err == nil
}

// copyTo has the replica, which is database 1, know what Redis knows.
func (w *twin) copyTo() {
	w.db.DB(1).FlushDB()
	for _, key := range w.db.Keys() {
		w.must(w.db.Copy(0, key, 1, key))
	}
}

// failOver makes the replica the master.
func (w *twin) failOver() {
	w.db.SwapDB(0, 1)
	w.db.DB(1).FlushDB()
}

// revoked is what a lock holds that an attempt has lost, and keeps.
func revoked(name string) string { return strings.Replace(name, "siding:", "siding:revoked-", 1) }

// tie reports whether lines of two queues begin with the same ticket, of which one is older in the model; or whether Redis still has
// one of them held whose task is gone, which the model forgets at once; or a task has crashed too often, which upkeep is to end.
func (w *twin) tie() bool {
	if slices.ContainsFunc(w.state.Tasks[:], func(t model.Task) bool { return t.Crashes > model.FreeCrashes }) {
		return true
	}
	for r := range uint8(model.MaxResources) {
		lines, err := w.db.SortedSet(taskredis.LinesKey(lockOf(r)))
		if err != nil || len(lines) < 2 {
			continue
		}
		if lines[queueOf(0)] == lines[queueOf(1)] {
			return true
		}
		for q := range uint8(model.MaxQueues) {
			until, held := w.score(taskredis.HeldKey(queueOf(q)), lockOf(r))
			if held && until > w.micros() && w.m.GoesOn(&w.state, q, r) {
				return true
			}
		}
	}
	return false
}

// line orders the entries of a ready set that are due as the model does. Which of two locks was taken longest ago it does not know.
func (w *twin) line() {
	for q := range uint8(model.MaxQueues) {
		for r, entry := range w.state.Queues[q].Ready {
			key, lock := taskredis.ReadyKey(queueOf(q)), lockOf(uint8(r))
			if score, ok := w.score(key, lock); ok && score <= w.micros() && entry < model.Offer {
				w.must(expect.Err(w.db.ZAdd(key, float64(entry), lock)))
			}
		}
	}
}

// holds wants that a task has held its line.
func (w *twin) holds(held bool, err error) {
	w.must(err)
	if !held {
		w.must(errors.New("want a task that holds its line"))
	}
}

func (w *twin) leaseEnds(queue, id string) {
	w.must(w.rdb.ZAddXX(w.ctx(), taskredis.LeaseKey(queue), redis.Z{Score: 1, Member: id}).Err())
}

// due makes an entry of a ready set due, behind those that are.
func (w *twin) due(q, r uint8) {
	queue, lock := queueOf(q), lockOf(r)
	if entry := w.state.Queues[q].Ready[r]; entry == model.Offer || entry == model.NoEntry {
		return
	}
	if score, ok := w.score(taskredis.ReadyKey(queue), lock); ok && score > w.micros() {
		w.must(expect.Err(w.db.ZAdd(taskredis.ReadyKey(queue), w.micros(), lock)))
	}
}

func (w *twin) enqueue(move model.Move) {
	spec, queue, id := w.m.Tasks[move.Task-1], queueOf(move.Queue), idOf(move.Task)
	message := taskredis.Message{Type: kindOf(spec), ID: id, Queue: queue, Timeout: 60, Payload: []byte(id)}
	key := taskredis.TaskKey(queue, id)
	w.db.HSet(key, "msg", string(message.Encode()), "state", "pending", "pending_since", "1")
	if spec.Resource != model.Unguarded && !spec.Plain {
		w.db.HSet(key, "siding_resource", resourceOf(spec))
	}
	w.must(expect.Err(w.db.Lpush(taskredis.PendingKey(queue), id)))
	w.must(expect.Err(w.db.SAdd("asynq:queues", queue))) // for the inspector
}

// step is the next step of a server: with what has ended, and the slots that are free.
func (w *twin) step(p *process, move model.Move) *taskredis.Step {
	serving := w.m.Servers[move.Server]
	sent := w.state.CopyOf(move.Server, serving.Slots, move.Queue)
	p.number++
	s := &taskredis.Step{Number: p.number, After: p.answered, Sent: w.now.UnixMicro()}
	for _, i := range w.state.Outcomes(&sent) {
		s.Outcomes = append(s.Outcomes, w.outcome(i, &w.state.Attempts[i]))
	}
	order := ""
	for n := range uint8(model.MaxQueues) {
		if q := (move.Queue + n) % model.MaxQueues; slices.Contains(serving.Queues, q) {
			s.Draws = append(s.Draws, taskredis.Draw{Queue: queueOf(q), Pending: w.state.Servers[move.Server].Turn[q]})
			order += string(rune(len(s.Draws)))
		}
	}
	for range sent.Slots {
		s.Slots = append(s.Slots, taskredis.Order(order))
	}
	return s
}

func (w *twin) outcome(i int, a *model.Attempt) taskredis.Outcome {
	o := taskredis.Outcome{Name: w.attempts[i].Name, Message: w.attempts[i].message}
	switch a.Kind {
	case model.Succeed:
		o.Kind = taskredis.Done
	case model.Fail:
		o.Kind, o.After = taskredis.Retry, time.Hour
	case model.Requeue:
		o.Kind = taskredis.Requeue
	case model.Snooze:
		o.Kind, o.After, o.Losses = taskredis.Snooze, time.Hour, 1
		o.Lock = "" // it says so whether it has its lock or not
	case model.Hold:
		o.Kind, o.After, o.Hold = taskredis.Retry, time.Hour, true
	case model.StopLine:
		o.Kind, o.Hold = taskredis.Archive, true
	case model.Ask:
		o.Kind, o.Want = taskredis.Ask, locksOf(w.m.Tasks[a.Task-1])
	case model.More:
		o.Kind, o.Most, o.Like = taskredis.More, model.MaxTasks, kindOf(w.m.Tasks[a.Task-1])
	default:
		w.must(fmt.Errorf("no such outcome: %v", a.Kind))
	}
	return o
}

// run is the arrival of a step at Redis, which a process has sent.
func (w *twin) run(of *process, s *taskredis.Step, next model.State) {
	answer, err := of.Step(w.ctx(), s)
	switch {
	case err != nil && strings.Contains(err.Error(), "comes after step"):
		return
	case err != nil:
		w.must(err)
		return
	case s.Number == of.number && answer.Follows(s):
		of.heard = s.Number
	case s.Number == of.number:
		of.heard = answer.Known
	}
	for _, trouble := range answer.Troubles {
		w.must(errors.New(trouble))
	}
	for _, taken := range answer.Taken {
		w.begins(&taken, &next)
	}
	for i, result := range answer.Results {
		if a := w.attempt(s.Outcomes[i].Attempt); a != nil && result == taskredis.Granted {
			a.Lock = answer.Replies[i].Lock
		}
	}
}

// attempt returns what is known of an attempt by its name, nil for nothing.
func (w *twin) attempt(name string) *attempt {
	for _, a := range w.attempts {
		if a.Attempt == name {
			return a
		}
	}
	return nil
}

// begins finds the place of an attempt in the model's next state. After a failover it may have the name of one that is forgotten.
func (w *twin) begins(taken *taskredis.Taken, next *model.State) {
	maps.DeleteFunc(w.attempts, func(_ int, a *attempt) bool { return a.Attempt == taken.Attempt })
	for n, t := range next.Tasks {
		if t.Status == model.Active && idOf(model.ID(n+1)) == taken.ID {
			a := &attempt{taken.Name, taken.Encoded}
			a.Lock = cmp.Or(taken.Lock, taken.First.Lock)
			w.attempts[int(t.Attempt)-1] = a
			return
		}
	}
	w.must(fmt.Errorf("the scripts begin an attempt of task %s, and the model does not", taken.ID))
}

// name returns what the scripts call the attempt with a token.
func (w *twin) name(token uint8) string {
	if a := w.attempts[int(token)-1]; a != nil {
		return a.Attempt
	}
	return "somebody whom the scripts do not know"
}

// renew is the heartbeat of a server that goes on.
func (w *twin) renew(p *process, server uint8) {
	var names []taskredis.Name
	for i, a := range w.state.Attempts {
		if a.Server == server && !a.Lost && (a.Phase == model.Running || a.Phase == model.Ended && a.Result != model.IsGranted) {
			names = append(names, w.attempts[i].Name)
		}
	}
	w.must(expect.Err(p.Renew(w.ctx(), "", names)))
}

// A picture is what the model or Redis knows. Of times it has whether they have come, and of tickets their order in a line.
type picture struct {
	Tasks   []pictureOfTask
	Pending [model.MaxQueues][]string
	Lines   [model.MaxQueues][model.MaxResources]pictureOfLine
	Holders [model.MaxResources]string
}

type pictureOfTask struct {
	State, Waits, Attempt string
	Crashes               int
	Leased                bool
}

type pictureOfLine struct {
	Entry  string // of the ready set
	IDs    []string
	Listed bool
}

// model returns what the model knows.
func (w *twin) model() (p picture) {
	s := &w.state
	for n := range w.m.Tasks {
		t := &s.Tasks[n]
		task := pictureOfTask{Leased: t.Lease != model.NoLease}
		switch t.Status {
		case model.Pending:
			task.State = "pending"
		case model.Active:
			task.State, task.Attempt = "active", w.name(t.Attempt)
		case model.Retry, model.Archived:
			task.State = map[model.Status]string{model.Retry: "retry", model.Archived: "archived"}[t.Status]
			task.Waits = map[model.Set]string{model.Waits: "in line", model.Held: "held", model.Backoff: "in no line", model.Stopped: "stopped"}[t.Set]
		default: // it has no hash
		}
		if task.State != "" {
			task.Crashes = int(t.Crashes)
		}
		p.Tasks = append(p.Tasks, task)
	}
	for q := range p.Pending {
		for _, id := range s.Queues[q].Pending {
			if id != 0 {
				p.Pending[q] = append(p.Pending[q], idOf(id))
			}
		}
		for r := range p.Lines[q] {
			p.Lines[q][r] = w.lineOf(uint8(q), uint8(r))
		}
	}
	for r := range p.Holders {
		switch l := &s.Locks[r]; {
		case l.Token == model.Foreign:
			p.Holders[r] = plainProgram
		case l.Token > 0 && l.Revoked:
			p.Holders[r] = revoked(w.name(l.Token))
		case l.Token > 0:
			p.Holders[r] = w.name(l.Token)
		}
	}
	return p
}

// lineOf returns what the model knows of a line.
func (w *twin) lineOf(q, r uint8) (line pictureOfLine) {
	s := &w.state
	switch entry := s.Queues[q].Ready[r]; {
	case entry == model.NoEntry:
	case entry < model.Offer:
		line.Entry = "due"
	case entry == model.Offer && s.Locks[r].Token == 0:
		line.Entry = "offered"
	default:
		line.Entry = "later"
	}
	for _, id := range w.m.Line(&s.Redis, q, r) {
		line.IDs = append(line.IDs, idOf(id))
	}
	line.Listed = s.Locks[r].Lines[q] > 0
	return line
}

// redis returns what Redis knows.
func (w *twin) redis() (p picture) {
	for n, spec := range w.m.Tasks {
		p.Tasks = append(p.Tasks, w.redisTask(queueOf(spec.Queue), idOf(model.ID(n+1))))
	}
	for q := range p.Pending {
		queue := queueOf(uint8(q))
		pending, _ := w.db.List(taskredis.PendingKey(queue)) // an error says that nobody is
		for _, id := range slices.Backward(pending) {
			p.Pending[q] = append(p.Pending[q], id)
		}
		for r := range p.Lines[q] {
			line, lock := &p.Lines[q][r], lockOf(uint8(r))
			switch score, ok := w.score(taskredis.ReadyKey(queue), lock); {
			case !ok:
			case score <= w.micros():
				line.Entry = "due"
			case score <= w.micros()+offer && !w.db.Exists(lock):
				line.Entry = "offered"
			default:
				line.Entry = "later"
			}
			line.IDs, _ = w.db.ZMembers(taskredis.LineKey(queue, lock))
			_, line.Listed = w.score(taskredis.LinesKey(lock), queue)
		}
	}
	for r := range p.Holders {
		p.Holders[r], _ = w.db.Get(lockOf(uint8(r)))
	}
	return p
}

// redisTask returns what Redis knows of a task.
func (w *twin) redisTask(queue, id string) (task pictureOfTask) {
	_, task.Leased = w.score(taskredis.LeaseKey(queue), id)
	field := func(name string) string { return w.db.HGet(taskredis.TaskKey(queue, id), name) }
	held := field("siding_held")
	task.State = field("state")
	task.Crashes, _ = strconv.Atoi(field("siding_crashes"))
	score, ok := w.score(taskredis.RetryKey(queue), id)
	switch {
	case task.State == "active":
		task.Attempt = field("siding_attempt")
	case task.State == "archived" && held == "stop":
		task.Waits = "stopped"
	case task.State != "retry" || !ok:
	case fmt.Sprint(int64(score)) != field("siding_until"):
		task.Waits = "in no line"
	case held > fmt.Sprint(w.now.UnixMicro()):
		task.Waits = "held"
	default:
		task.Waits = "in line"
	}
	return task
}
