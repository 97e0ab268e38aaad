// Package model is a model of how guarded tasks lock, park and wake. The model is small enough to
// try all that can happen: every order of the steps of a few tasks, with some faults among them.
//
// A [State] is what Redis and its clients know. A [Step] is one script, or one event: time passes,
// a worker dies, an operator deletes a task. [Model.Explore] visits every state and looks for
//
//   - two holders of one resource, or a write to the ledger with an older fence than one before;
//   - a task in two places or in the wrong one, back from the dead, done without its effect or by
//     an attempt that had lost its lock, or out of its own back-off too early;
//   - a living attempt whose task was moved;
//   - a holder in the wait queue, a waiter that lost its position, or one that stays although it
//     was seen to be gone;
//   - a task that has lost its ticket: a late one, or a requeued one;
//   - a waiting task that comes only by its fallback time or the sweeper, though nothing went wrong. A
//     prefetched task counts as waiting until it starts;
//   - a state from which not all tasks can finish without fallback times, which take hours and count
//     as faults;
//   - a run without end, fair to everybody, in which no task finishes.
//
// A finding comes with a shortest way there, in words. The [Mistake]s show that the model finds
// mistakes. Tests of package hook show that the model is true. They make its steps with the real
// scripts, and compare.
package model
