package model

import (
	"fmt"
	"strings"
	"time"
)

// A Transition is one call, or one event, and the state after it.
type Transition struct {
	Move   Move
	Next   State
	Broken string // the property that the step breaks
	Counts uint8  // the goals that rely on the step: bit 0 for the first
	Actor  uint8  // who or what makes the step, below nobody; nobody need not make it in a fair run
	AtOnce bool   // it happens by itself, and no time has to pass before
}

// A Goal is to stay within reach of every state, by steps that count for it.
type Goal struct {
	Property string // that is broken by a state from which no way leads to the goal
	Reached  func(s *State) bool
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
