// Package engine runs the tasks of asynq's queues, each under the lock of its resource. It does for its users what
// asynq.Server does, on asynq's data. Package queue is built on it.
//
// One goroutine decides, the loop:
//
//	pending, lines ──> step ──> attempts ──> handlers ──> outcomes ──> the next step
//
// Its step says what has ended since the last one and how many slots are free, and the answer has the attempts that may
// start (loop.go). A sender sends a step until it is answered, and there are two of them (scope.go, sender.go). The queues know from
// which of them a free slot takes (queues.go). An attempt runs in a goroutine, new or used by others
// before, which asks for another lock if it needs one, calls the handler, and makes an outcome of what that returned (run.go,
// outcome.go). Attempts belong to the loop, but for what their goroutines write until they report, by one channel. These ask Redis
// nothing but in [Task.Begin].
//
// Beside the loop each server has a few goroutines that know nothing of its state: one that waits for notifications while
// there is nothing to do (notify.go), one that looks after the queues if the server is elected (upkeep.go), one that makes
// tasks of groups (groups.go), one that hears of cancellations, one for the health check, and one for what the dashboard
// shows of the server. Functions of the user are called by protect.go, so that none of them can end any of this, or hold
// up the loop.
package engine
