package permits

import (
	"fmt"
	"strconv"
	"strings"
)

// A Kind is a kind of move.
type Kind uint8

// The kinds of moves. Those from LoseAsk on are faults.
const (
	Ask Kind = iota
	Release
	ReleaseAgain
	Wake
	Sweep
	SweepAgain
	SweepPlanned
	Expire
	Change
	ChangeRates
	Unpause
	Read
	Tick

	LoseAsk
	LoseRelease
	LoseSweep
	LoseWaker
	LosePlan
	Crash
	Stall
	ExpireEarly
)

var kindWords = [...]string{
	Ask: "task %d asks", Release: "task %d releases", ReleaseAgain: "task %d sends its release again", Wake: "task %d is woken",
	Sweep: "the sweeper looks", SweepAgain: "the sweep is sent again", SweepPlanned: "a client sweeps at the time of the next start",
	Expire: "permit %d expires", Change: "the limit is %d", ChangeRates: "the rates change", Unpause: "the limit is %d again", Read: "the servers have read the rule", Tick: "a second passes",
	LoseAsk: "task %d asks, and the answer is lost", LoseRelease: "task %d releases, and the answer is lost",
	LoseSweep: "the sweeper looks, and the answer is lost", LoseWaker: "task %d is never woken, as the client dies",
	LosePlan: "the client dies that would sweep at the time of the next start", Crash: "task %d loses its worker", Stall: "task %d stalls",
	ExpireEarly: "permit %d expires before its waiter is woken",
}

func (k Kind) fault() bool { return k >= LoseAsk }

// waits reports whether the move needs time to pass.
func (k Kind) waits() bool {
	return k == Sweep || k == Expire || k == Unpause || k == Tick
}

// A Move is one call, or one event.
type Move struct {
	Kind Kind
	N    uint8 // of the task, of the permit from 1 on, or the limit
	Rule Rule  // that the call carries
	Old  bool  // it is that of a server which has not read the last override
}

func (m Move) String() string {
	words := strings.ReplaceAll(kindWords[m.Kind], "%d", strconv.Itoa(int(m.N)))
	if m.Old {
		words += fmt.Sprintf(", by the old limit of %d and the old rates", m.Rule.Limit)
	}
	return words
}
