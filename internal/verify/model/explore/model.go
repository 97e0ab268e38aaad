// Package explore tries all that can happen in a model. A [Model] says in which state it starts, and
// which steps are possible in a state. [Run] visits every state, and reports the first property that is
// broken, with a shortest way there.
//
// A property is one of these:
//
//   - a step breaks it, see [Step.Broken];
//   - a state breaks it from which nothing goes on by itself, see Model.Idle;
//   - there is a state from which a [Goal] cannot be reached any more;
//   - there is a run without end, fair to everybody, that never reaches a Goal.
package explore

import (
	"fmt"
	"strings"
	"time"
)

// A Model is explored by its states of type S, and by its moves of type M.
type Model[S comparable, M fmt.Stringer] interface {
	Start() S
	// Steps appends all steps that are possible in s.
	Steps(steps []Step[S, M], s *S) []Step[S, M]
	// Canonical returns the state that stands for s, and for all states that differ from s only in what
	// changes nothing.
	Canonical(s S) S
	// Idle returns the property that is broken if no step out of s happens at once; "" for none.
	Idle(s *S) string
	// Goals returns what is to stay within reach, at most eight.
	Goals() []Goal[S]
}

// A Step is one call, or one event, and the state after it.
type Step[S any, M fmt.Stringer] struct {
	Move   M
	Next   S
	Broken string // the property that the step breaks
	Counts uint8  // the goals that rely on the step: bit 0 for the first
	Actor  uint8  // who or what makes the step, below Nobody; Nobody need not make it in a fair run
	AtOnce bool   // it happens by itself, and no time has to pass before
}

// Nobody makes a step that a fair run may do without.
const Nobody = 63

// A Goal is to stay within reach of every state, by steps that count for it.
type Goal[S any] struct {
	Property string // that is broken by a state from which no way leads to the goal
	Reached  func(s *S) bool
	// Fair is the property that is broken if a fair run without end exists; "" if that does not
	// matter. A run is fair if no actor stands still for ever that could move at any time from some
	// point on. All steps to the goal have to leave no way back.
	Fair string
}

// A Report is what an exploration found.
type Report struct {
	States, Steps int
	Took          time.Duration
	// Broken is the property that is broken, "" if none is, and Trace a shortest way there, in words.
	Broken string
	Trace  []string
}

func (r Report) String() string {
	size := fmt.Sprintf("%d states, %d steps, %.1f s", r.States, r.Steps, r.Took.Seconds())
	if r.Broken == "" {
		return size
	}
	return fmt.Sprintf("%s (%s)\n  %s", r.Broken, size, strings.Join(r.Trace, "\n  "))
}

// Property is the name of the property that is broken: what comes before the colon.
func (r Report) Property() string {
	name, _, _ := strings.Cut(r.Broken, ":")
	return name
}
