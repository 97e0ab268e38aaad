package lock_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// The kinds of operation on a lock. A client makes the first four, time and
// faults the rest.
const (
	opAcquire = "acquire"
	opAgain   = "again" // the holder takes the lock once more
	opUse     = "use"   // the client looked, and was told that it holds the lock
	opRelease = "release"
	opExpire  = "expire" // of one lease; the server may do it from the call on
	opForget  = "forget" // the server loses what it has acknowledged
)

// The outcomes of an operation. An operation that is open has no answer: it may take effect at any
// time after its call, or never.
const (
	outOK   = "ok"
	outBusy = "busy"
	outLost = "lost"
	outOpen = "open"
)

// An op is the input of an operation. A lease is named by the client, before it
// has it, and no name is used twice.
type op struct {
	Kind  string
	Key   string
	Lease string // "" for forget
}

// A result is its output. Fence is that of an acquire, or of the same by the
// holder, that was answered with ok.
type result struct {
	Outcome string
	Fence   int64
}

// A stay is one lease on the lock.
type stay struct {
	held  string
	fence int64 // 0 when it is not known
	count int   // how often it has been taken, and not been released
}

// lockState is what a lock is in: free, or held by one lease. A ghost is a lease
// that the server has forgotten, and the holder has not been told.
type lockState struct {
	holder stay // of count 0 when the lock is free
	high   int64
	ghosts []stay
}

// fencedMutex is a reentrant mutex whose holds may expire, and are numbered in
// rising order. Each key is a mutex of its own.
var fencedMutex = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, o := range history {
			key := as[op](o.Input).Key
			byKey[key] = append(byKey[key], o)
		}
		parts := make([][]porcupine.Operation, 0, len(byKey))
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, output any) (bool, any) {
		return as[lockState](state).step(as[op](input), as[result](output))
	},
	Equal: func(a, b any) bool {
		x, y := as[lockState](a), as[lockState](b)
		return x.holder == y.holder && x.high == y.high && slices.Equal(x.ghosts, y.ghosts)
	},
	DescribeOperation: func(input, output any) string {
		in, out := as[op](input), as[result](output)
		return fmt.Sprintf("%s %s: %s %d", in.Kind, in.Lease, out.Outcome, out.Fence)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// as is v as what it is known to be.
func as[T any](v any) T {
	known, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("want %T, have %T", known, v))
	}
	return known
}

// step says whether the operation can have come out so, and what is then.
func (s lockState) step(in op, out result) (bool, lockState) {
	free := s.holder.count == 0
	switch in.Kind {
	case opAcquire:
		switch out.Outcome {
		case outBusy:
			return !free || len(s.ghosts) > 0, s
		case outOpen:
			if free {
				s.holder = stay{held: in.Lease, count: 1}
			}
			return true, s
		default:
			if !free || out.Fence <= s.high {
				return false, s
			}
			s.holder, s.high = stay{in.Lease, out.Fence, 1}, out.Fence
			return true, s
		}
	case opAgain:
		if out.Outcome != outOK {
			return true, s
		}
		had := s.of(in.Lease)
		if had.count == 0 || had.fence != out.Fence {
			return false, s
		}
		return true, s.with(in.Lease, had.count+1)
	case opUse:
		return s.of(in.Lease).count > 0, s
	case opRelease:
		had := s.of(in.Lease)
		if had.count == 0 {
			return out.Outcome != outOK, s
		}
		return true, s.with(in.Lease, had.count-1)
	case opExpire:
		return true, s.with(in.Lease, 0)
	case opForget:
		if !free {
			s.ghosts = append(slices.Clone(s.ghosts), s.holder)
			s.holder = stay{}
		}
		return true, s
	}
	return false, s
}

// of returns what lease has, of count 0 when that is nothing.
func (s lockState) of(held string) stay {
	if s.holder.held == held {
		return s.holder
	}
	for _, g := range s.ghosts {
		if g.held == held {
			return g
		}
	}
	return stay{}
}

// with returns s with another count for lease, which it loses with the last.
func (s lockState) with(held string, count int) lockState {
	if s.holder.held == held {
		s.holder.count = count
		if count == 0 {
			s.holder = stay{}
		}
		return s
	}
	i := slices.IndexFunc(s.ghosts, func(g stay) bool { return g.held == held })
	if i < 0 {
		return s
	}
	s.ghosts = slices.Clone(s.ghosts)
	s.ghosts[i].count = count
	if count == 0 {
		s.ghosts = slices.Delete(s.ghosts, i, i+1)
	}
	return s
}

// The model refuses what no fenced mutex does: the last step of each of these histories. Without that step it accepts them, and the
// histories of real locks show what else it accepts.
func TestFencedMutexRefuses(t *testing.T) {
	t.Parallel()
	for _, history := range []string{
		"a takes 5, b takes 6",                                       // two holders
		"a takes 5, a releases, b is refused",                        // it was free
		"a takes 5, a releases, b takes 4",                           // the fence goes back
		"a takes 5, a releases, b takes 5",                           // it repeats
		"a takes 5, a again 6",                                       // it rises for the same holder
		"a takes 5, a again 5, a releases, b takes 6",                // free after the first of two releases
		"a takes 5, a expires, b takes 6, a again 5",                 // taken again after its loss
		"a takes 5, a expires, b takes 6, a uses",                    // used after that
		"a takes 5, a releases, a uses",                              // or after its release
		"a takes 5, a expires, b takes 6, a releases",                // released what another has
		"a takes 5, all is forgotten, b takes 1",                     // a fence is not forgotten
		"a takes 5, all is forgotten, b takes 6, c takes 7",          // and what is forgotten is one holder only
		"a takes 5, all is forgotten, b takes 6, a releases, a uses", // who may end as any other
	} {
		var ops []porcupine.Operation
		for i, step := range strings.Split(history, ", ") {
			who, did, _ := strings.Cut(step, " ")
			what, number, _ := strings.Cut(did, " ")
			fence, _ := strconv.ParseInt(number, 10, 64)
			kind := map[string]string{"takes": opAcquire, "is": opAcquire, "again": opAgain, "uses": opUse, "releases": opRelease, "expires": opExpire}[what]
			outcome := outOK
			switch number {
			case "refused":
				outcome = outBusy
			case "forgotten":
				kind, who = opForget, ""
			}
			ops = append(ops, porcupine.Operation{ClientId: i, Call: int64(2 * i), Return: int64(2*i + 1), Input: op{kind, "k", who}, Output: result{outcome, fence}})
		}
		expect.Equal(t, history, porcupine.CheckOperationsTimeout(fencedMutex, ops, patience), porcupine.Illegal)
		expect.Equal(t, history+", without the last step", porcupine.CheckOperationsTimeout(fencedMutex, ops[:len(ops)-1], patience), porcupine.Ok)
	}
}
