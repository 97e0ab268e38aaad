package model

// Sizes of a state. A run that needs more attempts at a time panics.
const (
	MaxTasks     = 4
	MaxResources = 2
	MaxQueues    = 2
	MaxServers   = 2
	maxAttempts  = 8
)

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
	NoKind   Kind = iota
	Succeed       // done or complete
	Fail          // retry: it comes at the end of its line
	Requeue       // it comes at once, in its place
	Snooze        // it comes later, in its place, and is in no line until then
	Hold          // the same, and its line waits for it
	StopLine      // archive: its line waits until an operator does something
	Ask           // it asks for its lock
	More          // it asks for those that wait for its lock, and goes on
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
	Task      ID
	Server    uint8
	First     uint8 // the name of the attempt under whose lock it runs, in a batch; free for its own
	Phase     Phase
	Kind      Kind
	Result    Result
	Locked    bool // it was given its lock
	Lost      bool // it knows that it must not trust its lock any more
	Untrusted bool // its trust window was over before its server heard of it
	Disowned  bool // the lock was revoked, or lost with the writes that a failover forgot: nobody can know
}

// A Copy is the content of a step.
type Copy struct {
	Kinds [maxAttempts]Kind // the outcomes
	Slots uint8
	Order uint8 // the queue that is drawn first
	Turn  [MaxQueues]bool
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
	CutOff  bool            // neither steps nor heartbeats arrive
	Drains  bool            // shuts down: takes nothing any more
	Asleep  bool            // has a free slot, found nothing, and waits for a notification, for a second at most
	Listens bool            // an element of a list of notifications comes to it, also if its slots are taken by now
	Popped  bool            // has one, and no free slot
	Alarm   bool            // will look when the offer is over
	Waits   bool            // for the answer to a step
	Strange bool            // its idea of Redis' clock is wrong, or it has none yet
	Gap     bool            // the answer that is on its way says that steps are forgotten
	Turn    [MaxQueues]bool // of the next step: true if it begins with pending
	Sent    Copy            // the step that it waits for
	Stray   Copy            // one that is still on its way
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

// asks reports whether an attempt has not ended, and asks a step for something.
func (a *Attempt) asks() bool { return a.Phase == Ended && (a.Kind == Ask || a.Kind == More) }

// gone returns what is left of an attempt whose process is gone.
func (a *Attempt) gone() Attempt {
	return Attempt{Task: a.Task, Server: a.Server, First: a.First, Phase: Gone, Kind: a.Kind, Locked: a.Locked}
}

// token returns the name of the attempt in a slot.
func token(slot int) uint8 { return uint8(slot + 1) }

// Holder returns the attempt that has the lock of an attempt: the first of its batch, or itself.
func (s *State) Holder(attempt uint8) uint8 {
	if attempt != free && s.Attempts[attempt-1].First != free {
		return s.Attempts[attempt-1].First
	}
	return attempt
}

// batch calls do with the attempts that run under the lock of one: itself, and those that have joined it.
func (s *State) batch(first uint8, do func(a *Attempt)) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Phase != None && s.Holder(token(i)) == first {
			do(a)
		}
	}
}

// each calls do with the attempts of a server, and perhaps with places that have none.
func (s *State) each(server uint8, do func(a *Attempt)) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Server == server {
			do(a)
		}
	}
}

// working returns how many slots of a server are taken. Who asks keeps its own, and those that join a batch need none.
func (s *State) working(server uint8) (n uint8) {
	s.each(server, func(a *Attempt) {
		if a.First == free && (a.Phase == Begun || a.Phase == Running || a.asks()) {
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
