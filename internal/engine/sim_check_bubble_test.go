package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// What is looked at after each call that Redis has run, and when handlers begin. The caller of each function holds the
// lock of the world, if it says nothing else.

// begins is called by a handler, without the lock.
func (w *world) begins(ctx context.Context, n *member, t *Task) (*run, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.dead || w.failure != "" {
		return nil, false
	}
	j, attempt := w.jobs[t.ID], t.Taken.Attempt
	j.begun++
	r := &run{member: n, job: j, attempt: attempt, resource: t.Resource, ctx: ctx}
	if t.First() != nil {
		r.resource = "" // which the first of its batch has
	}
	if at, ok := w.attempts[attempt]; !ok || !at.at.After(w.jumped) {
		r.suspect = true // a failover has forgotten it, or its lock has ended early
	}
	w.logf("%s runs %s of %s, resource %q%s", n.name, short(attempt), t.ID, t.Resource, ifText(ctx.Err() != nil, ", its context has ended"))
	if w.starts[attempt+" "+t.ID] {
		w.failf("the handler of %s of %s begins twice", attempt, t.ID)
	}
	w.starts[attempt+" "+t.ID] = true
	if t.Resource != j.resource {
		w.failf("%s: want resource %q, have %q", t.ID, j.resource, t.Resource)
	}
	if ctx.Err() == nil && !r.suspect {
		w.onlyAsMany(r.resource, attempt+" begins")
	}
	w.runs = append(w.runs, r)
	return r, true
}

// ends is called when a handler returns, without the lock.
func (w *world) ends(r *run, result error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.member.dead {
		return
	}
	w.runs = slices.DeleteFunc(w.runs, func(other *run) bool { return other == r })
	w.returned[r.attempt+" "+r.job.id] = result
	w.logf("%s: %s of %s returns %v%s", r.member.name, short(r.attempt), r.job.id, result, ifText(r.ctx.Err() != nil, ", its context had ended"))
}

func ifText(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

// resourcesOf returns the resources of locks, or of their permits.
func resourcesOf(locks string) string {
	names := store.SplitLocks(locks)
	for i, key := range names {
		names[i] = strings.TrimPrefix(store.LockOf(key), lockPrefix)
	}
	return store.Join(names...)
}

// onlyAsMany checks that there is room for one more who has these resources.
func (w *world) onlyAsMany(resources, why string) {
	for _, name := range store.Names(resources) {
		w.nobodyRuns(name, why, w.most[name]-1)
	}
}

// nobodyRuns checks that not more than so many handlers may trust that they have a resource.
func (w *world) nobodyRuns(resource, why string, but int) {
	if resource == "" {
		return
	}
	others := ""
	for _, r := range w.runs {
		if slices.Contains(store.Names(r.resource), resource) && r.ctx.Err() == nil && !r.suspect {
			if but--; but < 0 {
				others += fmt.Sprintf(" %s of %s on %s", r.attempt, r.job.id, r.member.name)
			}
		}
	}
	if others != "" {
		w.failf("%s: %s, and this still runs:%s", resource, why, others)
	}
}

// stepped takes what a step has done, as Redis has run it.
func (n *member) stepped(s *taskredis.Step, try int, a *taskredis.Answer, err error) {
	w := n.w
	w.steps++
	w.logf("%s step %d-%d.%d%s", n.name, s.Lane, s.Number, try, stepText(s, a, err))
	if err != nil {
		if !strings.Contains(err.Error(), "comes after step") {
			w.failf("a step fails: %v", err)
		}
		return
	}
	if !a.Follows(s) {
		if w.failovers == 0 && n.refusals == 0 {
			w.failf("step %d-%d of %s does not follow %d and %d", s.Lane, s.Number, n.name, a.Known, a.OtherKnown)
		}
		return
	}
	if a.Known == s.Number {
		for _, t := range a.Taken {
			if !slices.Contains(n.taken[idOf(s)], t.Attempt) {
				w.failf("the record of step %d-%d of %s has an attempt that the step did not begin: %s", s.Lane, s.Number, n.name, t.Attempt)
			}
		}
		return
	}
	order := make([]int, len(s.Outcomes)) // those who ask get their locks by when they came
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(a.Replies[i].Fence, a.Replies[k].Fence) })
	for _, i := range order {
		w.settled(&s.Outcomes[i], a.Results[i], a.Replies[i])
	}
	for _, name := range a.Recovered {
		t := w.tasks[name.ID]
		t.moved = true
		w.tasks[name.ID] = t
	}
	for _, p := range a.Parked {
		t := w.tasks[p.ID]
		t.moved, t.hold = true, hold{} // it waits as others do
		w.tasks[p.ID] = t
	}
	most := len(s.Slots)
	for _, o := range s.Outcomes {
		most += o.Most
	}
	if len(a.Taken) > most {
		w.failf("want at most %d tasks, have %d", most, len(a.Taken))
	}
	for i := range a.Taken {
		n.taken[idOf(s)] = append(n.taken[idOf(s)], a.Taken[i].Attempt)
		w.take(&a.Taken[i])
		at := w.attempts[a.Taken[i].Attempt]
		at.unheard = n.told[idOf(s)]
		w.attempts[a.Taken[i].Attempt] = at
	}
	// (A copy of the first step that a failover has forgotten is run as new, and its answer may be the second.)
	if len(a.Taken) > 0 && n.told[idOf(s)] && !n.dead && w.failovers == 0 {
		w.failf("step %d-%d of %s was answered, and has begun %s once more", s.Lane, s.Number, n.name, a.Taken[0].Attempt)
	}
}

// answer takes an answer that comes to a loop, which must have all that the step has begun.
func (n *member) answer(s *taskredis.Step, try int, a *taskredis.Answer) {
	w := n.w
	w.logf("%s hears of step %d-%d.%d", n.name, s.Lane, s.Number, try)
	if n.told[idOf(s)] || n.dead {
		return
	}
	n.told[idOf(s)] = true
	if w.failovers > 0 {
		return
	}
	for _, attempt := range n.taken[idOf(s)] {
		at, ok := w.attempts[attempt]
		if !ok || at.settled || slices.ContainsFunc(a.Taken, func(t taskredis.Taken) bool { return t.Attempt == attempt }) {
			continue
		}
		key := taskredis.TaskKey(w.jobs[at.id].queue, at.id)
		held := at.lock == "" || w.redis.run("GET", at.lock) == attempt // else it has lost its lock meanwhile
		if held && w.redis.run("HGET", key, "siding_attempt") == attempt && w.redis.do("HGET", key, "state") == "active" {
			w.failf("%s does not hear of %s, which its step %d-%d has begun", n.name, attempt, s.Lane, s.Number)
		}
	}
}

func stepText(s *taskredis.Step, a *taskredis.Answer, err error) string {
	var text strings.Builder
	for i := range s.Outcomes {
		o := &s.Outcomes[i]
		result := "?"
		if err == nil && len(a.Results) > 0 {
			result = string(a.Results[i])
		}
		fmt.Fprintf(&text, " [%s %s of %s%s: %s]", o.Kind, short(o.Attempt), o.ID, ifText(o.Want != "", " "+o.Want), result)
	}
	if len(s.Slots) > 0 {
		text.WriteString(" " + strconv.Itoa(len(s.Slots)) + " slots of")
		for _, d := range s.Draws {
			text.WriteString(" " + d.Queue)
		}
	}
	if err != nil {
		return text.String() + ": " + err.Error()
	}
	switch {
	case a.Known == s.Number:
		text.WriteString(" (from the record)")
	case !a.Follows(s):
		fmt.Fprintf(&text, " does not follow %d and %d", a.Known, a.OtherKnown)
	}
	for _, name := range a.Recovered {
		fmt.Fprintf(&text, " recovers %s (%s)", name.ID, name.Lock)
	}
	for _, p := range a.Parked {
		fmt.Fprintf(&text, " parks %s (%s)", p.ID, p.Lock)
	}
	for i := range a.Taken {
		t := &a.Taken[i]
		fmt.Fprintf(&text, " takes %s (%s, %s, ticket %d)", t.ID, short(t.Attempt), t.Lock, t.Ticket)
	}
	for i, d := range a.Drawn {
		fmt.Fprintf(&text, " %s%s%s due %v", s.Draws[i].Queue, ifText(d.Paused, " paused"), ifText(d.More, " more"), d.Due)
	}
	for _, trouble := range a.Troubles {
		text.WriteString(" TROUBLE " + trouble)
	}
	return text.String()
}

// settled takes what a step has made of an outcome.
func (w *world) settled(o *taskredis.Outcome, result taskredis.Result, grant taskredis.Reply) {
	at, ok := w.attempts[o.Attempt]
	t := w.tasks[o.ID]
	key := taskredis.TaskKey(o.Queue, o.ID)
	switch result {
	case taskredis.Granted:
		if !ok || at.settled {
			w.failf("%s is given %s after its end", o.Attempt, grant.Lock)
		}
		at.lock, at.resource, at.at = grant.Lock, resourcesOf(o.Want), time.Now()
		w.attempts[o.Attempt] = at
		w.onlyAsMany(at.resource, o.Attempt+" is given it")
		w.fence(at.resource, grant.Fence, grant.Fences)
		for _, queue := range w.queues {
			w.nobodyWaits(queue, &at)
		}
		w.nobodyHolds(o.Queue, &at)
		t.hold = hold{}
		w.tasks[o.ID] = t
		return
	case taskredis.Stale:
		if ok && !at.settled && w.redis.do("HGET", key, "siding_attempt") == o.Attempt && w.redis.do("HGET", key, "state") == "active" {
			w.failf("the outcome of %s counts for nothing, but it is the latest", o.Attempt)
		}
		return
	case taskredis.Lost:
		if o.Lock != "" && w.holdsAll(o.Lock, o.Attempt) {
			w.failf("%s has lost its lock, but it holds it", o.Attempt)
		}
		return
	case taskredis.Begun:
		return
	case taskredis.Settled, taskredis.Parked:
	default:
		w.failf("the outcome of %s: %s", o.Attempt, result)
		return
	}
	if !ok || at.settled || at.id != o.ID {
		w.failf("the outcome of %s counts, but it had ended", o.Attempt)
		return
	}
	at.settled = true
	w.attempts[o.Attempt] = at
	for name, member := range w.attempts {
		if w.refused == 0 && member.first == o.Attempt && !member.settled && !member.unheard && w.redis.do("HGET", taskredis.TaskKey(o.Queue, member.id), "siding_attempt") == name {
			w.failf("%s of %s has ended, and its member %s has not", o.Attempt, o.ID, member.id)
		}
	}
	w.lastMove = time.Now()
	t.moved = true
	returned, has := w.returned[o.Attempt+" "+o.ID]
	switch o.Kind {
	case taskredis.Done, taskredis.Complete:
		if !has || returned != nil && !errors.Is(returned, asynq.RevokeTask) {
			w.failf("%s of %s is done, but its handler has returned %v", o.Attempt, o.ID, returned)
		}
		t.state = "done"
		if o.Kind == taskredis.Complete {
			t.state = "kept"
		}
		w.processed[o.Queue]++
	case taskredis.Archive:
		t.state = "archived"
		w.processed[o.Queue]++
		w.failed[o.Queue]++
	case taskredis.Retry:
		t.retried++
		w.processed[o.Queue]++
		w.failed[o.Queue]++
	case taskredis.Snooze, taskredis.Requeue, taskredis.Ask, taskredis.More:
	}
	if o.Kind != taskredis.Ask {
		t.hold = w.holdOf(o, onFailure(&taskredis.Message{Type: w.jobs[o.ID].kind}))
	}
	w.tasks[o.ID] = t
}

// holdsAll reports whether an attempt holds its locks by all of these keys.
func (w *world) holdsAll(keys, attempt string) bool {
	for _, key := range store.SplitLocks(keys) {
		if w.redis.do("GET", key) != attempt {
			return false
		}
	}
	return true
}

// take takes an attempt that a step has begun.
func (w *world) take(t *taskredis.Taken) {
	at := attempt0{id: t.ID, lock: t.Lock, ticket: t.Ticket, resource: resourcesOf(t.Lock), at: time.Now(), first: t.First.Attempt}
	was := w.tasks[t.ID]
	m, err := taskredis.DecodeMessage(t.Encoded)
	switch {
	case err != nil:
		w.failf("%s: %v", t.ID, err)
	case was.state != "live":
		w.failf("%s begins, but it is %q", t.ID, was.state)
	case m.Retried != was.retried:
		w.failf("%s: want %d retries used, have %d", t.ID, was.retried, m.Retried)
	case strings.Contains(m.ErrorMsg, "waits for"):
		w.failf("%s: its message has the sentence for people: %q", t.ID, m.ErrorMsg)
	}
	if until := was.hold.until; was.hold.resources != "" && until < forEver && until > w.redis.now().UnixMicro() {
		w.failf("%s begins, but its time comes in %d µs", t.ID, until-w.redis.now().UnixMicro())
	}
	w.attempts[t.Attempt] = at
	w.lastMove = time.Now()
	if first := t.First.Attempt; first != "" {
		at.resource = w.attempts[first].resource
		w.nobodyWaits(w.jobs[t.ID].queue, &at)
		w.nobodyCrashed(w.jobs[t.ID].queue, &at)
		w.nobodyHolds(w.jobs[t.ID].queue, &at)
		if !w.holdsAll(w.attempts[first].lock, first) {
			w.failf("%s begins under the lock of %s, which does not hold it", t.ID, first)
		}
	}
	if t.Lock == "" {
		return
	}
	w.onlyAsMany(at.resource, t.Attempt+" takes it")
	w.fence(at.resource, t.Fence, t.Fences)
	queue := w.jobs[t.ID].queue
	w.nobodyWaits(queue, &at)
	w.nobodyCrashed(queue, &at)
	w.nobodyHolds(queue, &at)
	if !was.moved {
		for id, other := range w.tasks {
			j := w.jobs[id]
			if other.state == "live" && !other.moved && j.queue == queue && j.field == w.jobs[t.ID].field && j.arrival < w.jobs[t.ID].arrival {
				w.failf("%s takes %s, but %s came before it", t.ID, at.resource, id)
			}
		}
	}
	moved := w.tasks[t.ID]
	moved.moved, moved.hold = true, hold{}
	w.tasks[t.ID] = moved
}

func (w *world) fence(resources string, fence int64, fences []int64) {
	names := store.Names(resources)
	if fences == nil {
		fences = []int64{fence}
	}
	if len(fences) != len(names) || fences[0] != fence {
		w.failf("%q: want a fence of each, have %d and %v", resources, fence, fences)
		return
	}
	for i, name := range names {
		if w.back == 0 && fences[i] <= w.fences[name] {
			w.failf("%s: want a fence above %d, have %d", name, w.fences[name], fences[i])
		}
		w.fences[name] = fences[i]
	}
}

// nobodyWaits checks that an attempt passes nobody who waits in a queue with a lower ticket.
func (w *world) nobodyWaits(queue string, at *attempt0) {
	own := taskredis.TaskKey(w.jobs[at.id].queue, at.id)
	for _, name := range store.Names(at.resource) {
		lock := lockPrefix + name
		line, _ := w.redis.db.SortedSet(taskredis.LineKey(queue, lock)) // an error says that there is none
		for id, ticket := range line {
			if int64(ticket) < at.ticket && w.waits(queue, id, lock, ticket) && !w.redis.after(taskredis.TaskKey(queue, id), own) {
				w.failf("%s takes %s with ticket %d, but %s waits with ticket %.0f", at.id, name, at.ticket, id, ticket)
			}
		}
	}
}

// nobodyCrashed checks that an attempt that a step has begun passes nobody who has crashed. (One that asks for its lock
// may, until a step looks at its queue.)
func (w *world) nobodyCrashed(queue string, at *attempt0) {
	now := float64(w.redis.now().UnixMilli()) / 1000
	leases, err := w.redis.db.SortedSet(taskredis.LeaseKey(queue))
	if err != nil {
		return
	}
	for id, lease := range leases {
		key := taskredis.TaskKey(queue, id)
		if id == at.id || w.redis.db.HGet(key, "state") != "active" {
			continue
		}
		ticket, _ := strconv.ParseInt(w.redis.db.HGet(key, "siding_ticket"), 10, 64)
		held := w.redis.db.HGet(key, "siding_lock")
		needs, holds := false, false
		for _, one := range store.SplitLocks(held) {
			attempt := w.redis.db.HGet(key, "siding_attempt")
			_, first, _ := strings.Cut(attempt, "\n") // one of a batch runs under the lock of its first, or its permit
			holds = holds || w.held(one, cmp.Or(first, attempt))
			needs = needs || slices.Contains(store.Names(at.resource), resourcesOf(one))
		}
		if needs && !holds && ticket < at.ticket && lease <= now {
			w.failf("%s takes %s with ticket %d, but %s with ticket %d has crashed", at.id, at.resource, at.ticket, id, ticket)
		}
	}
}

// held reports whether an attempt holds a lock by a key: that of the lock, or of a permit.
func (w *world) held(key, attempt string) bool {
	keys := []string{key}
	numbers, _ := w.redis.db.HKeys(store.Beside(key, "permits")) // an error says that there are none
	for _, number := range numbers {
		keys = append(keys, store.PermitKey(key, number))
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		value, _ := w.redis.db.Get(key)
		return value == attempt
	})
}

// waits reports whether a member of a line waits for its lock.
func (w *world) waits(queue, id, lock string, ticket float64) bool {
	key := taskredis.TaskKey(queue, id)
	if w.redis.db.HGet(key, "state") != "retry" || !slices.Contains(store.SplitLocks(w.redis.db.HGet(key, "siding_lock")), lock) || w.redis.db.HGet(key, "siding_ticket") != fmt.Sprintf("%.0f", ticket) {
		return false
	}
	score, ok := w.scoreOf(taskredis.RetryKey(queue), id)
	until, err := strconv.ParseFloat(w.redis.db.HGet(key, "siding_until"), 64)
	return ok && err == nil && score == until
}

// changed looks at the data after a change of them, and passes notifications on.
func (w *world) changed() {
	w.redis.tick()
	w.ring()
	if w.failure == "" {
		w.checkState()
	}
}

// Where a task is.
const (
	inPending = 1 << iota
	inActive
	inLease
	inRetry
	inArchived
	inCompleted
)

var placesOf = map[string]int{"pending": inPending, "active": inActive | inLease, "retry": inRetry, "archived": inArchived, "completed": inCompleted, "": 0}

var statesOf = map[string]string{"pending": "live", "active": "live", "retry": "live", "archived": "archived", "completed": "kept"}

// checkState checks what must be true of the data at any time.
func (w *world) checkState() {
	db := w.redis.db
	places := make(map[string]int, len(w.tasks))
	put := func(id string, place int) {
		if places[id]&place != 0 {
			w.failf("%s is twice in one list", id)
		}
		places[id] |= place
	}
	for _, queue := range w.queues {
		for place, key := range map[int]string{inPending: taskredis.PendingKey(queue), inActive: taskredis.ActiveKey(queue)} {
			if list, err := db.List(key); err == nil {
				for _, id := range list {
					put(id, place)
				}
			}
		}
		for place, key := range map[int]string{
			inLease: taskredis.LeaseKey(queue), inRetry: taskredis.RetryKey(queue),
			inArchived: taskredis.ArchivedKey(queue), inCompleted: taskredis.CompletedKey(queue),
		} {
			if set, err := db.SortedSet(key); err == nil {
				for id := range set {
					put(id, place)
				}
			}
		}
		w.checkCounts(queue)
	}
	for _, j := range w.order {
		id := j.id
		t, ok := w.tasks[id]
		if !ok { // a failover has forgotten it
			continue
		}
		key := taskredis.TaskKey(j.queue, id)
		state := db.HGet(key, "state")
		if places[id] != placesOf[state] {
			w.failf("%s has state %q, but is in %06b", id, state, places[id])
		}
		delete(places, id)
		if have := statesOf[state]; have != t.state && (have != "" || t.state != "done" && t.state != "deleted") {
			w.failf("%s: want it %s, have state %q", id, t.state, state)
		}
		switch state {
		case "retry":
			w.checkWaiting(j)
		case "active":
			w.checkActive(j)
		}
		if t.hold.resources != "" && !t.hold.gone {
			w.checkHeld(j, t.hold)
		}
	}
	for id, place := range places {
		w.failf("%s is in %06b, but there is no such task", id, place)
	}
	for _, queue := range w.queues {
		for _, resource := range w.resources {
			w.checkLine(queue, resource)
		}
	}
	for _, resource := range w.resources {
		lock := lockPrefix + resource
		w.checkLock(lock)
		if numbers, err := db.HKeys("{" + lock + "}:permits"); err == nil {
			for _, number := range numbers {
				w.checkLock(store.PermitKey(lock, number))
			}
		}
	}
}

func (w *world) checkCounts(queue string) {
	for what, want := range map[string]int{"processed": w.processed[queue], "failed": w.failed[queue]} {
		text, _ := w.redis.db.Get("asynq:{" + queue + "}:" + what)
		if have, _ := strconv.Atoi(text); have != want {
			w.failf("%s of %s: want %d, have %d", what, queue, want, have)
		}
	}
}

// checkWaiting checks that a task that waits for a lock is in its line.
func (w *world) checkWaiting(j *job) {
	db, key := w.redis.db, taskredis.TaskKey(j.queue, j.id)
	until, err := strconv.ParseFloat(db.HGet(key, "siding_until"), 64)
	if score, _ := w.scoreOf(taskredis.RetryKey(j.queue), j.id); err != nil || score != until {
		return // it is to be retried
	}
	ticket := db.HGet(key, "siding_ticket")
	for _, lock := range store.SplitLocks(db.HGet(key, "siding_lock")) {
		if score, ok := w.scoreOf(taskredis.LineKey(j.queue, lock), j.id); !ok || fmt.Sprintf("%.0f", score) != ticket {
			w.failf("%s waits for %s with ticket %s, but the line has %.0f", j.id, lock, ticket, score)
		}
	}
}

// checkActive checks that a lease ends with its lock.
func (w *world) checkActive(j *job) {
	db, key := w.redis.db, taskredis.TaskKey(j.queue, j.id)
	attempt := db.HGet(key, "siding_attempt")
	for _, lock := range store.SplitLocks(db.HGet(key, "siding_lock")) {
		if value, err := db.Get(lock); lock == "" || err != nil || value != attempt {
			continue
		}
		lease, _ := w.scoreOf(taskredis.LeaseKey(j.queue), j.id)
		// Redis' locks end with a millisecond, and those of miniredis within it.
		// A lease that was set before the clock stepped back lasts until it is renewed, or looked after.
		ends := w.redis.now().Add(db.TTL(lock) + time.Millisecond + w.back)
		if lease > float64(ends.UnixMicro())/1e6 {
			w.failf("%s: its lease ends at %.3f, after its lock at %.6f", j.id, lease, float64(ends.UnixMicro())/1e6)
		}
	}
}

// checkLine checks that somebody looks at a line in time.
func (w *world) checkLine(queue, resource string) {
	db, lock := w.redis.db, lockPrefix+resource
	line, err := db.SortedSet(taskredis.LineKey(queue, lock))
	if err != nil || len(line) == 0 {
		return
	}
	due, ok := w.scoreOf(taskredis.ReadyKey(queue), lock)
	if !ok {
		w.failf("%s has a line in %s, but is not in its ready set", lock, queue)
		return
	}
	first, ok := w.scoreOf(taskredis.LinesKey(lock), queue)
	if !ok {
		w.failf("%s has a line in %s, but does not list it", lock, queue)
		return
	}
	waiting := false
	for id, ticket := range line {
		if w.waits(queue, id, lock, ticket) {
			waiting = true
			if ticket < first {
				w.failf("%s lists the line in %s with ticket %.0f, but %s has %.0f", lock, queue, first, id, ticket)
			}
		}
	}
	if !waiting {
		return
	}
	most := 50*time.Millisecond + time.Millisecond + w.back
	if db.Exists(lock) {
		most = db.TTL(lock) + time.Millisecond + w.back
		if db.TTL(lock) == 0 {
			most = time.Second
		}
	}
	if len(w.foreigners) > 0 || w.sets > 0 || w.crashes == 0 { // then the first of a line may wait for other locks, or for upkeep
		most = max(most, time.Second+time.Millisecond+w.back)
	}
	if w.limits != "" {
		most += 3 * time.Second
	}
	if rest := w.restOf(queue, lock, line); rest > 0 {
		most = max(most, rest+time.Millisecond+w.back)
	}
	if until := time.Duration(due)*time.Microsecond - time.Duration(w.redis.now().UnixMicro())*time.Microsecond; until > most {
		w.failf("%s is looked at for %s in %v, want %v at most", lock, queue, until, most)
	}
}

// checkLock checks that a lock which an attempt holds is that of a task at work.
func (w *world) checkLock(key string) {
	value, err := w.redis.db.Get(key)
	if err != nil || !strings.HasPrefix(value, "siding:") {
		return
	}
	name := strings.Replace(value, "siding:revoked-", "siding:", 1) // so a step marks a lock that has run out
	if _, ok := w.attempts[name]; !ok {
		w.failf("%s is held by %s, which nobody knows", key, value)
		return
	}
	works := func(name string) bool {
		id := w.attempts[name].id
		task := taskredis.TaskKey(w.jobs[id].queue, id)
		return w.redis.db.HGet(task, "siding_attempt") == name && w.redis.db.HGet(task, "state") == "active"
	}
	if works(name) {
		return
	}
	for member, at := range w.attempts {
		if name != value && at.first == name && works(member) { // whose outcome Redis has refused until after the batch
			return
		}
	}
	w.failf("%s is held by %s, but its task is not at work by that", key, value)
}

// checkEnd checks what is left once all has ended. It takes the lock.
func (w *world) checkEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis.run("PING")
	w.checkState()
	for _, key := range w.redis.db.Keys() {
		switch {
		case strings.Contains(key, "}:processed"), strings.Contains(key, "}:failed"), strings.HasSuffix(key, "}:fence"):
		case (strings.HasSuffix(key, "}:starts") || strings.HasSuffix(key, "}:freed")) && w.redis.db.TTL(key) > 0:
		case strings.HasSuffix(key, "}:permits") && w.redis.db.TTL(key) > 0: // of a permit that has run out, and nobody wanted it since
		case strings.HasSuffix(key, "}:notify"): // a late call may have told a server that is to look within a second
		case key == "asynq:queues", key == "siding:slots", strings.HasPrefix(key, "siding:step:"):
		case strings.HasSuffix(key, "}:archived"), strings.HasSuffix(key, "}:completed"), strings.Contains(key, "}:t:"): // checkState knows them
		case strings.Contains(key, "}:unique:"):
			id := key[strings.LastIndex(key, ":")+1:]
			if w.tasks[id].state != "archived" {
				w.failf("left behind: %s", key)
			}
		default:
			w.failf("left behind: %s", key)
		}
	}
	for _, n := range w.members {
		if len(n.loop.reports) > 0 {
			w.failf("%s has something left to do", n.name)
		}
	}
}
