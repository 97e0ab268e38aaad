package model

// A Mistake is one that could be made in the protocol. A model with a mistake
// must fail.
type Mistake string

// The mistakes that the model knows.
const (
	None                Mistake = ""
	NotedAndForgotten   Mistake = "a waiter that is called while it is still active is not called again"
	ReservationForever  Mistake = "a reservation does not expire"
	GhostNotSkipped     Mistake = "the call of a waiter that is gone ends there"
	PromoteUnchecked    Mistake = "promote does not compare the ticket"
	CalledUnchecked     Mistake = "a call that came too late takes its waiter out of the line"
	PromoteInTwoSteps   Mistake = "promote looks and moves in two steps"
	LeavesWhenReserved  Mistake = "a waiter leaves the line when the lock is reserved for it"
	HolderStaysInLine   Mistake = "a waiter that gets the lock stays in line"
	LapseForgotten      Mistake = "a lapsed reservation leaves no mark"
	ReleaseOfAnothers   Mistake = "release does not compare the token"
	LedgerUnfenced      Mistake = "the ledger does not compare the fence"
	AckUnchecked        Mistake = "an acknowledgement does not compare the attempt"
	RecoveryWithoutLock Mistake = "the recovery does not look at the lock"
	RecoveryUnchecked   Mistake = "the recovery moves a task without comparing the attempt it was found under"
	LossUnseen          Mistake = "nobody looks whether a task that waits stands in line"
	NoSweeper           Mistake = "nobody looks at the locks that tasks wait for"
	SweeperHeedsMark    Mistake = "the sweeper leaves a lock alone whose reservation has lapsed"
	PausedDropped       Mistake = "a waiter whose queue is paused is taken out of the line"
	AsideForgotten      Mistake = "those set aside come back only when one of them asks for the lock"
	LateComesLast       Mistake = "a waiter that comes after its grace joins at the end"
	PutBackComesLast    Mistake = "a task that is put back joins at the end"
	PutBackStaysOut     Mistake = "a task that is put back stands in no line when its handler releases the lock"
	FinishUnchecked     Mistake = "a finish does not compare the attempt"
	FinishAfterLoss     Mistake = "a finish says that a task is done whose lock was lost"
	AheadForgotten      Mistake = "a task that was taken in advance, and that nobody claims, is not put back"
	AheadComesLast      Mistake = "a task that was taken in advance and is put back loses its ticket"
	AheadStaysOut       Mistake = "a task that was taken in advance and is put back stands in no line when its lock is released"
	AheadUnchecked      Mistake = "putting back what was taken in advance does not compare the attempt"
	AheadKeepsLock      Mistake = "a task that was taken in advance is put back, and its lock is not released"
)
