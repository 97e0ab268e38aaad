package model

// A Mistake is one that could be made in the protocol. A model with a mistake must fail.
type Mistake string

// The mistakes that the model knows, by the rule that they break.
const (
	NoMistake Mistake = ""

	// Lines and ready sets.
	OwnLineOnly    Mistake = "a release marks only the line of its own queue"
	LockerUnmarked Mistake = "a Locker marks no lines"
	LineUnlisted   Mistake = "a new line is not listed at its lock"
	ParkNotReady   Mistake = "a task is parked without an entry in the ready set"
	NoUpkeep       Mistake = "nobody rebuilds what was evicted"

	// Scores.
	ScoredAhead    Mistake = "whoever parks sets the score to the end of a lock, also of a free one"
	ForeignAsOurs  Mistake = "a lock of a plain program is looked at when it expires, which may be never"
	LookForgets    Mistake = "a look at a lock that is held removes the entry"
	HeadNotLowered Mistake = "a task that comes back before a held head leaves the score alone"

	// The order of writes.
	PopsFirst         Mistake = "a task leaves its list before it is active"
	LeavesFirst       Mistake = "a task is no longer active before it is elsewhere"
	HashFirst         Mistake = "the hash says that a task waits before it does"
	LeftoverComesBack Mistake = "a lease brings back a task that is not active"

	// Recovery.
	RecoveryByLease   Mistake = "a recovery takes the task and the lock of an attempt whose lease has ended"
	LeaseLater        Mistake = "a lease ends later than its lock"
	LeaseRenewedAlone Mistake = "a heartbeat renews a lease also without the lock"
	RecoverLast       Mistake = "a step recovers after it has fetched"
	RecoveryBounded   Mistake = "a step fetches although it has not recovered all"
	BackToPending     Mistake = "a crashed task comes back to the head of pending"
	CrashUsesRetry    Mistake = "a crash uses a retry"

	// Heads.
	HeadUnverified   Mistake = "a head is started whatever has become of it"
	TicketUnverified Mistake = "a head is started though its hash has another ticket"
	StoppedPassed    Mistake = "a look passes a task that has stopped its line"
	GoneOnUnmarked   Mistake = "an operator sets a line going, and marks it not"
	TicketForgotten  Mistake = "a task comes back with a new ticket"
	PassedForLater   Mistake = "a look that passed many heads leaves the rest for later"
	PopUnchecked     Mistake = "a task in pending is started whatever its hash says"

	// Two queues.
	OfferForever     Mistake = "a look leaves the lock to an older line of another queue"
	OfferedToAll     Mistake = "a lock is offered to queues that nobody serves"
	OtherLinesPassed Mistake = "a pending task heeds only the line of its own queue"

	// Sets.
	OneHead         Mistake = "a set starts as the first in one of its lines"
	TakesSome       Mistake = "a set takes the locks that are free, and waits for the others"
	EntersOneLine   Mistake = "a set waits in the line of one of its locks"
	LeavesOneLine   Mistake = "a set that starts leaves one of its lines"
	MarksOneLine    Mistake = "a release of several locks marks only the lines of the first"
	BlockedForLater Mistake = "a set that is first, and is blocked, is looked at when a lock expires"

	// Batches.
	FirstEndsFirst  Mistake = "the first of a batch ends before the others"
	MembersFree     Mistake = "whoever of a batch ends frees its lock"
	LosesAlone      Mistake = "the others of a batch do not hear that the first has lost its lock"
	RecoversMembers Mistake = "recovery takes those that have joined a batch for attempts without a lock"
	CrashedJoins    Mistake = "a task that has crashed runs in a batch"
	JoinsPast       Mistake = "a batch passes those of its line that may not join"
	KeepsUnheard    Mistake = "those that nobody has heard of stay in a batch that has lost its lock"

	// Clocks.
	ClockUnseen    Mistake = "nobody sees that the clock stepped back"
	OldAnswerCalms Mistake = "a server takes the time from an old answer, and nobody looks at the scores"
	TicketByClock  Mistake = "a ticket is the time, also after the clock stepped back"

	// Waiting.
	UntilForgotten Mistake = "the forwarder gives a waiter another time, and the hash another one"

	// Steps with numbers.
	RecordUnchecked   Mistake = "a step that is sent again runs again"
	OlderAccepted     Mistake = "a step with an older number runs"
	AgedFetches       Mistake = "a step for which nobody waits any more fetches"
	ReplayUnconfirmed Mistake = "an answer from the record is trusted as it is"
	TrustFromAnswer   Mistake = "trust counts from the answer"
	TrustsTooLong     Mistake = "a holder trusts its lock after that has expired"
	NothingSentAgain  Mistake = "after a failover nobody sends outcomes again"

	// Outcomes.
	OutcomeUnchecked  Mistake = "an outcome does not compare the attempt"
	LeftUnchecked     Mistake = "an outcome does not ask whether the task is still active"
	LostSettles       Mistake = "an outcome counts although the lock is lost"
	ReleaseOfAnothers Mistake = "a release does not compare the token"
	AsksFirst         Mistake = "a step gives a lock to who asks before it recovers"
	AskAgainParks     Mistake = "who asks again for a lock that it has is parked"
	AsksInAnyOrder    Mistake = "a step gives locks to those that ask in any order"
	StaleKeepsLock    Mistake = "a stale outcome leaves the lock alone"

	// Turns.
	TurnForgotten Mistake = "a step always begins with pending"
	OwnFirst      Mistake = "a release gives its slot to the next waiter of its resource"

	// Notifications.
	NobodyTold      Mistake = "nobody is told of what a step leaves"
	PoppedForgotten Mistake = "a server that is notified and has no free slot tells nobody"
	OthersNotTold   Mistake = "servers of other queues are not told of a release"
)
