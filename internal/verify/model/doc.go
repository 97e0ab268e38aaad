// Package model is a model of how guarded tasks lock, park and are called
// back, small enough that all that can happen is tried: every order of the steps
// of a few tasks, with some faults among them.
//
// A [State] is what Redis holds and what its clients have in mind. A [Step] is one
// script, or one event: time passes, a worker dies, an operator deletes a task.
// [Model.Explore] visits every state and looks for
//
//   - two holders of one resource, or a write to the ledger under an older fence
//     than one before it;
//   - a task in two places or in the wrong one, back from the dead, done without
//     its effect, done by an attempt that had lost its lock, or fetched from the back-off after
//     its own failure;
//   - a living attempt whose task was moved;
//   - a holder in line, a waiter that lost its place, a ghost that was seen and stayed;
//   - a task that has lost its ticket: one that comes too late, or was put back;
//   - a waiting task that only a timer or the sweeper brings back, though nothing went wrong; a
//     task that was taken in advance counts as waiting until it begins;
//   - a state from which not all tasks can finish without the timers of tasks in line, which
//     take hours and count as faults;
//   - a run without end, fair to everybody, in which no task finishes.
//
// What it finds comes with a shortest way there, in words. That it would find
// something is shown by the [Mistake]s. That the model is of the real thing is shown
// by tests of package asynqredis, which make its steps with the real scripts and
// compare.
package model
