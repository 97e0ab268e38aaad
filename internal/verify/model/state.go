package model

// Sizes of a state. A run that needs more attempts at a time panics.
const (
	MaxTasks     = 4
	MaxResources = 2
	MaxQueues    = 2
	MaxServers   = 2
	maxAttempts  = 8
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
	Ticket  uint8 // in the hash, 0 for none. Only which of a resource's tickets are older counts
	Line    uint8 // its ticket in the line, 0 when it is in none
	Attempt uint8 // the latest, in the hash: its slot + 1
	Known   bool  // the hash has its lock; only a plain client's task comes without
	Crashes uint8 // as the hash counts them
	Retried uint8 // by crashes
}

// A Score says when an entry of a ready set is due. A lower one is earlier.
type Score uint8

// The scores. Those from 1 on and below Offer are due, the lower the longer.
const (
	NoEntry Score = 0
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
	Locks   [MaxResources + 1]Lock // the last one stands for none
	Records [MaxServers]Record
}

// A Phase is how far an attempt has come.
type Phase uint8

// The phases of an attempt.
const (
	None    Phase = iota
	Begun         // a step has begun it, and its server has not heard of that
	Running       // its handler is at work
	Ended         // its outcome is to be sent
	Settled       // its outcome is settled, and its server remembers it for some seconds
	Gone          // its process is gone, or will never hear of it
)

// A Kind is what has become of an attempt.
type Kind uint8

// The kinds of outcomes.
const (
	NoKind  Kind = iota
	Succeed      // done or complete
	Fail         // retry: it comes at the end of its line
	Again        // requeue: it comes at once, in its place
	Delay        // again: it comes later, in its place, and is in no line until then
	Hold         // the same, and its line waits for it
	Halt         // archive: its line waits until an operator does something
	Ask          // it asks for its lock
)

// A Result is what a step made of an outcome whose server has not heard of it.
type Result uint8

// The results.
const (
	NoResult Result = iota
	IsOver          // settled, parked or stale
	IsLost
	IsGranted
)

// An Attempt is one run of a task.
type Attempt struct {
	Task   ID
	Server uint8
	Phase  Phase
	Kind   Kind
	Result Result
	Locked bool // it was given its lock
	Lost   bool // it knows that it must not trust its lock any more
	Late   bool // its trust window was over before its server heard of it
	Orphan bool // the lock was revoked, or lost with the writes that a failover forgot: nobody can know
}

// A Copy is the content of a step.
type Copy struct {
	Kinds [maxAttempts]Kind // the outcomes
	Slots uint8
	Order uint8 // the queue that is drawn first
}

// A Way says whose a late copy is.
type Way uint8

// The ways of a late copy.
const (
	NoCopy Way = iota
	Same       // it has the number of the step that its server waits for
	Older
	Dead // its server is gone
)

// A Server is one process.
type Server struct {
	Stopped bool            // or cut off: neither steps nor heartbeats arrive
	Drains  bool            // shuts down: takes nothing any more
	Asleep  bool            // has a free slot, found nothing, and waits for a notification, for a second at most
	Listens bool            // an element of a list of notifications comes to it, also if its slots are taken by now
	Popped  bool            // has one, and no free slot
	Alarm   bool            // will look when the offer is over
	Waits   bool            // for the answer to a step
	Strange bool            // its idea of Redis' clock is wrong, or it has none yet
	Gap     bool            // the answer that is on its way says that steps are forgotten
	Turn    [MaxQueues]bool // true: the next one is from pending
	Sent    Copy            // the step that it waits for
	Late    Copy            // one that is still on its way
	Way     Way
}

// A State is all that Redis and the servers know. States are comparable.
type State struct {
	Redis

	Copied   Redis // what the replica has, once it has stopped to follow
	Behind   bool  // the replica has stopped to follow
	Attempts [maxAttempts]Attempt
	Servers  [MaxServers]Server

	Torn     bool  // a script has failed in its middle
	Damaged  bool  // keys were evicted, and upkeep has not been there
	Failed   bool  // over to the replica
	Unfair   bool  // the last step served a resource before one that was ready longer
	Back     bool  // the clock stepped back
	Faults   uint8 // that may still happen
	Failures uint8 // of handlers, likewise
	Actions  uint8 // of operators, likewise
}

func (r *Redis) task(id ID) *Task { return &r.Tasks[id-1] }

// finished reports whether the task will not run again by itself.
func (t *Task) finished() bool {
	return t.Status == Done || t.Status == Archived || t.Status == Deleted
}

// holds reports whether the task keeps those behind it in its line from starting.
func (t *Task) holds() bool { return t.Set == Held || t.Set == Stopped }

// hash reports whether the task has one.
func (t *Task) hash() bool { return t.Status != Absent && t.Status != Done && t.Status != Deleted }

// token returns the name of the attempt in a slot.
func token(slot int) uint8 { return uint8(slot + 1) }

// head returns the task with the lowest ticket in a line, 0 for none.
func (m *Model) head(s *Redis, q, r uint8) (head ID) {
	for n := range m.Tasks {
		id := ID(n + 1)
		if line := s.Tasks[n].Line; line > 0 && m.in(id, q, r) && (head == 0 || line < s.task(head).Line) {
			head = id
		}
	}
	return head
}

// in reports whether the task is one of a queue and of a resource.
func (m *Model) in(id ID, q, r uint8) bool {
	return m.Tasks[id-1].Queue == q && m.Tasks[id-1].Resource == r
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

// each calls do with the attempts of a server, and perhaps with places that have none.
func (s *State) each(server uint8, do func(a *Attempt)) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Server == server {
			do(a)
		}
	}
}

// working returns how many slots of a server are taken. Who asks for its lock keeps its own.
func (s *State) working(server uint8) (n uint8) {
	s.each(server, func(a *Attempt) {
		if a.Phase == Begun || a.Phase == Running || a.Phase == Ended && a.Kind == Ask {
			n++
		}
	})
	return n
}

// ended reports whether a server has an outcome to send.
func (s *State) ended(server uint8) (ended bool) {
	s.each(server, func(a *Attempt) { ended = ended || a.Phase == Ended })
	return ended
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
