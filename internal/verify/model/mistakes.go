package model

// A Mistake is one that could be made in the protocol. A model with a mistake
// must fail.
type Mistake string

// The mistakes that the model knows.
const (
	None                Mistake = ""
	MarkedAndForgotten  Mistake = "nobody wakes again a waiter that was still active"
	ReservationForever  Mistake = "a reservation does not expire"
	GoneNotSkipped      Mistake = "the waker of a waiter that is gone ends there"
	WakeUnchecked       Mistake = "a wake does not compare the ticket"
	ConfirmUnchecked    Mistake = "a waker that came too late removes its waiter from the wait queue"
	WakeInTwoSteps      Mistake = "a wake looks and moves in two steps"
	LeavesWhenReserved  Mistake = "a waiter leaves the wait queue when the lock is reserved"
	HolderStaysQueued   Mistake = "a waiter that gets the lock stays in the wait queue"
	ExpiryForgotten     Mistake = "an expired reservation leaves no mark"
	ReleaseOfAnothers   Mistake = "release does not compare the token"
	LedgerUnfenced      Mistake = "the ledger does not compare the fence"
	AckUnchecked        Mistake = "an acknowledgement does not compare the attempt"
	RecoveryWithoutLock Mistake = "the recovery does not look at the lock"
	RecoveryUnchecked   Mistake = "the recovery does not compare the attempt with which it found a task"
	LossUnseen          Mistake = "nobody looks whether a waiting task is in the wait queue"
	NoSweeper           Mistake = "nobody looks at the locks that tasks wait for"
	SweeperHeedsMark    Mistake = "the sweeper leaves a lock alone whose reservation has expired"
	PausedDropped       Mistake = "a waiter whose queue is paused leaves the wait queue"
	SkippedForgotten    Mistake = "skipped waiters come back only when one of them asks for the lock"
	LateComesLast       Mistake = "a waiter that comes after the hand-off timeout joins at the end"
	RequeuedComesLast   Mistake = "a requeued task joins at the end"
	RequeuedStaysOut    Mistake = "a requeued task is in no wait queue when its handler releases the lock"
	FinishUnchecked     Mistake = "a finish does not compare the attempt"
	FinishAfterLoss     Mistake = "a finish says that a task is done whose lock was lost"
	PrefetchForgotten   Mistake = "a prefetched task that nobody begins is not requeued"
	PrefetchComesLast   Mistake = "a prefetched task that is requeued loses its ticket"
	PrefetchStaysOut    Mistake = "a prefetched task that is requeued is in no wait queue when its lock is released"
	PrefetchUnchecked   Mistake = "the requeue of a prefetched task does not compare the attempt"
	PrefetchKeepsLock   Mistake = "a prefetched task is requeued, and its lock is not released"
)
