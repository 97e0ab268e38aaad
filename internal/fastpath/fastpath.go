// Package fastpath joins a step on a lock and one on its task into one script, on a single Redis.
// The dequeue of a task takes its lock, and the release of the lock wakes the next waiter. Only
// this package knows both the locks and the tasks.
package fastpath

import (
	_ "embed"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisstore"
)

var (
	//go:embed locking.lua
	lockingSource string
	//go:embed busy.lua
	busySource string
	//go:embed run.lua
	runSource string
	//go:embed wake_next.lua
	wakeNextSource string
)

// Dequeue returns a text in Lua that comes between attempt.lua and dequeue.lua of package hook.
// With it a dequeue takes the lock of its task, or parks the task. Most locks are free, so the functions
// that park are made when the first lock is busy.
func Dequeue() string {
	parking := redisstore.WaitLua() + asynqredis.EncodedLua + asynqredis.ParkingLua + busySource + runSource
	return redisstore.LockLua() + asynqredis.NamedLua + "local park_busy, park_run\nlocal function with_parking()\n" + parking + "end\n" + lockingSource
}

// Release returns the text in Lua with which finish.lua of package hook releases a lock.
func Release() string { return redisstore.ReleaseLua(Wake()) }

// Wake returns the text in Lua with which redisstore.Waking wakes parked tasks.
func Wake() string {
	return asynqredis.NotifyLua + asynqredis.WaitsLua + asynqredis.WakeLua + asynqredis.AttemptLua + wakeNextSource
}
