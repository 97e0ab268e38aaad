package model

import (
	"cmp"
	"slices"
)

// An ID names a task, from 1 on; 0 is none.
type ID uint8

// A Status is the state in a task's hash, or says that there is no hash.
type Status uint8

// The states of a task. Absent, Deleted and Done have no hash.
const (
	Absent Status = iota // not enqueued yet
	Pending
	Active
	Retry
	Archived
	Done
	Deleted // by an operator; the id may be enqueued again
)

// A Set says why a task is in asynq's retry set: what its score is.
type Set uint8

// The reasons to be in the retry set.
const (
	NotIn   Set = iota
	Waits       // the score is siding_until
	Held        // the same, but the task may not start before
	Backoff     // for a while, in no line
	Stopped     // in none: the task is archived, and holds its line until an operator does something
)

// A Lease is what asynq's list of active tasks and its set of leases say of a task.
type Lease uint8

// The leases. All but NoLease are in the list as well.
const (
	NoLease Lease = iota
	Runs
	Far // it will not end in time, as the clock stepped back
	Over
)

// A Task is what Redis knows of one.
type Task struct {
	Status  Status
	Set     Set
	Lease   Lease
	Ticket  uint8               // in the hash, 0 for none. Only which of a resource's tickets are older counts
	Line    [MaxResources]uint8 // its tickets in the lines, 0 where it is in none
	Attempt uint8               // the latest, in the hash: its slot + 1
	Known   bool                // the hash has its locks; a plain client's task comes without, and a set
	Crashes uint8               // as the hash counts them
	Retried uint8               // by crashes
	HasHeld bool                // it has held its line, and has not begun since: it joins no batch, and goes to its place if it is run
}

// A Score says when an entry of a ready set is due. A lower one is earlier.
type Score uint8

// The scores. Those from 1 on and below Offer are due, the lower the longer.
const (
	NoEntry Score = 0
	Now     Score = 1
	Offer   Score = 10 // in 50 ms
	Second  Score = 11
	Expiry  Score = 12 // when the lock expires, as far as known
	Later   Score = 13 // when the held head may start, or seconds later
	Never   Score = 14 // not in time
)

func (score Score) due() bool { return score > NoEntry && score < Offer }

// A Queue is one of asynq's, with the ready set beside it.
type Queue struct {
	Pending [MaxTasks + 1]ID // the head first
	Ready   [MaxResources]Score
	Notify  bool // the list has an element
	Paused  bool
	Seen    bool // a server of the queue had a free slot within the last seconds
	// If turns are counted: in which order the entries became due, and how often in a row pending was served while
	// a resource was ready, and the other way round.
	Since         [MaxResources]uint8
	PassedReady   uint8
	PassedPending uint8
}

// due makes an entry due, after those that are.
func (q *Queue) due(r uint8) {
	last, since := Score(0), uint8(0)
	for n, score := range q.Ready {
		if score.due() {
			last, since = max(last, score), max(since, q.Since[n])
		}
	}
	q.Ready[r], q.Since[r] = last+1, since+1
}

// The tokens of a lock that are no attempt's.
const (
	free    uint8 = 0
	locker  uint8 = 254 // a Locker of ours: it tells when it leaves
	Foreign uint8 = 255 // a plain program: it does not
)

// A Lock is that of a resource.
type Lock struct {
	Token uint8 // an attempt's slot + 1, or one of the above
	Far   bool  // it does not expire in time, as the clock stepped back
	Fresh bool  // it was released less than 50 ms ago, with waiting tasks
	// An operator has revoked it, or it had run out: the attempt has lost it, and keeps it until its server says what becomes of it.
	Revoked bool
	Lines   [MaxQueues]uint8
}

// take gives the lock to whoever has a token.
func (l *Lock) take(token uint8) { *l = Lock{Token: token, Lines: l.Lines} }

// attempt reports whether an attempt holds the lock.
func (l *Lock) attempt() bool { return l.Token != free && l.Token < locker }

// A Record is what Redis knows of the steps of a session.
type Record uint8

// The records.
const (
	Forgotten Record = iota // one from before the last step that was answered
	Before                  // the last step that was answered
	Latest                  // the step that is not answered yet
)

// Redis is all that Redis knows.
type Redis struct {
	Tasks   [MaxTasks]Task
	Queues  [MaxQueues]Queue
	Locks   [MaxResources]Lock
	Records [MaxServers]Record
}

func (r *Redis) task(id ID) *Task { return &r.Tasks[id-1] }

// finished reports whether the task will not run again by itself.
func (t *Task) finished() bool {
	return t.Status == Done || t.Status == Archived || t.Status == Deleted
}

// waits reports whether the task waits in the line of a lock, and is not only left there.
func (t *Task) waits(r uint8) bool {
	return t.Line[r] > 0 && t.Line[r] == t.Ticket && (t.Status == Pending || t.Status == Retry && t.Set == Waits || t.holds())
}

// holds reports whether the task keeps those behind it in its line from starting.
func (t *Task) holds() bool { return t.Set == Held || t.Set == Stopped }

// hash reports whether the task has one.
func (t *Task) hash() bool { return t.Status != Absent && t.Status != Done && t.Status != Deleted }

// head returns the task with the lowest ticket in a line, 0 for none.
func (m *Model) head(s *Redis, q, r uint8) (head ID) {
	for n := range m.Tasks {
		id := ID(n + 1)
		if line := s.Tasks[n].Line[r]; line > 0 && m.Tasks[n].Queue == q && (head == 0 || line < s.task(head).Line[r]) {
			head = id
		}
	}
	return head
}

// Line returns the tasks in a line, in their order.
func (m *Model) Line(s *Redis, q, r uint8) (ids []ID) {
	for n := range m.Tasks {
		if s.Tasks[n].Line[r] > 0 && m.Tasks[n].Queue == q {
			ids = append(ids, ID(n+1))
		}
	}
	slices.SortFunc(ids, func(a, b ID) int { return cmp.Compare(s.task(a).Line[r], s.task(b).Line[r]) })
	return ids
}

// share reports whether two tasks need the same lock.
func (m *Model) share(n, k int) bool {
	return slices.ContainsFunc(m.Tasks[n].Locks(), func(r uint8) bool { return slices.Contains(m.Tasks[k].Locks(), r) })
}

// has reports whether a task has all of its locks, by one of its attempts.
func (m *Model) has(s *Redis, id ID, attempt uint8) bool {
	return !slices.ContainsFunc(m.Tasks[id-1].Locks(), func(r uint8) bool { return s.Locks[r].Token != attempt || s.Locks[r].Revoked })
}

// keeps reports whether an attempt of a task has any of its locks, also a revoked one.
func (m *Model) keeps(s *Redis, id ID, attempt uint8) bool {
	return slices.ContainsFunc(m.Tasks[id-1].Locks(), func(r uint8) bool { return s.Locks[r].Token == attempt })
}

// oldest returns the queue whose listed head has the lowest ticket, MaxQueues for none.
func (l *Lock) oldest() uint8 {
	oldest := uint8(MaxQueues)
	for q, ticket := range l.Lines {
		if ticket > 0 && (oldest == MaxQueues || ticket < l.Lines[oldest]) {
			oldest = uint8(q)
		}
	}
	return oldest
}

// List operations on pending, whose first element is its head.

func (q *Queue) index(id ID) int {
	for i, other := range q.Pending {
		if other == id {
			return i
		}
	}
	return -1
}

func (q *Queue) push(id ID) {
	if n := q.index(0); n >= 0 {
		q.Pending[n] = id
		return
	}
	panic("ready: pending is full")
}

func (q *Queue) unshift(id ID) {
	if q.Pending[MaxTasks] != 0 {
		panic("ready: pending is full")
	}
	copy(q.Pending[1:], q.Pending[:])
	q.Pending[0] = id
}

func (q *Queue) remove(id ID) {
	if i := q.index(id); i >= 0 {
		copy(q.Pending[i:], q.Pending[i+1:])
		q.Pending[MaxTasks] = 0
	}
}
