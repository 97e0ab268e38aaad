package policies

// A Mistake is one that could be made in the policies, and some were. A model with a mistake must fail.
type Mistake string

// The mistakes that the model knows.
const (
	None                 Mistake = ""
	CoalescesIntoLate    Mistake = "a task is coalesced into one that has waited too long to run"
	RejectedIsRegistered Mistake = "a task that is about to be rejected is registered as the one that waits"
	StateIgnoresTicket   Mistake = "another task of a deleted waiter's id counts as the one that waits"
	StateUnchecked       Mistake = "nobody looks whether the registered task is still there"
	RejectsUnnamed       Mistake = "a task with the policy reject asks without its name"
	HeadStartKept        Mistake = "a task takes the position of another with the head start of that one"
	PositionUnregistered Mistake = "a task takes a position without meeting who is registered since"
	RegisteredTooEarly   Mistake = "a task keeps the time of an earlier one of its id"
	PositionFirst        Mistake = "a task takes a position before it deletes who has that"
	DeletesWoken         Mistake = "a task is replaced that was woken"
	EarlierReplaces      Mistake = "a replacement does not compare who came later"
	TakesOverLate        Mistake = "a task takes over the position of one that has waited too long to run"
	LateAtWork           Mistake = "a grant does not look at the wait of a worker"
	LateRuns             Mistake = "a grant does not look at the wait"
	RepeatIsTooMany      Mistake = "a task whose answer was lost is rejected although it is registered"
	TicketForgotten      Mistake = "a waker takes a waiter out of the wait queue whose ticket has changed"
	EndsAtWork           Mistake = "a task that has waited too long ends while it is at work"
	StrictPriority       Mistake = "a higher level always goes first"
	LevelIgnored         Mistake = "a priority is no head start"
	ManyWait             Mistake = "a task does not count those who wait"
	WorkerFirst          Mistake = "a worker that waits goes before the tasks that wait"
	StaysQueued          Mistake = "a task stays in the wait queue while its worker waits"
	WorkerStaysQueued    Mistake = "a worker that has waited stays in the wait queue"
	WorkerKeepsLock      Mistake = "a worker that has waited does not hand off the lock that is reserved for it"
	GoneKeepsLock        Mistake = "the waker of a waiter that is gone does not hand off, and nothing expires"
)
