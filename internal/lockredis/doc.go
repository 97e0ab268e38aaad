// Package lockredis keeps locks on Redis, and the one order in which goroutines and tasks get them. It is the store on Redis
// of package lock, and it has the Lua functions on locks for the steps of package taskredis. A goroutine and a task that want
// the same lock go through the same functions.
//
// A lock is its key and, beside it in the same slot of a Cluster, a few keys that all go away by themselves:
//
//	<lock>                the token of its holder, "siding:<unique>:<holder>"; or a reservation; or "siding-limited"
//	{<lock>}:fence        the last fencing token: when the lock was taken, µs. A '*' behind it says that the lock has been
//	                      reserved since
//	{<lock>}:queue        the wait queue: goroutines by ticket
//	{<lock>}:lines        the queues whose tasks wait, by the ticket of the first; the tasks are in taskredis' lines
//	{<lock>}:freed        when the lock was freed while tasks waited, and the trace of who did so
//	{<lock>}:permits      if it has a rule: the permits in use, n by fence
//	{<lock>}:permit:<n>   the token of a holder, or a reservation, as a lock without a rule has it
//	{<lock>}:starts       if it has rates: when the last of them started, µs
//	{<lock>}:released:…   what a release came to, for one that is sent again; 10 s
//	{<lock>}:revoked      what an operator did last
//
// A ticket is the time at which somebody came, in µs of Redis' clock. It is its place among all, of either kind.
//
// Whoever frees a lock gives it, in the same step, to the one with the lowest ticket (function free in free.lua). That may be
// a release, a waiter that leaves, an operator, or a step whose attempt has ended.
//
//   - For a goroutine the lock is reserved: the key holds "siding-reserved:<call>:<µs>:<waiter>" for the hand-off timeout, the
//     waiter leaves the wait queue, and its name is published on the channel of its process. It comes and takes the lock. If
//     nobody listens on that channel it has gone, and the next one is tried. If it does not come the reservation expires, and
//     the lock is for whoever asks first: so several that have gone cost the others one hand-off timeout, not one each.
//   - To tasks the lock is offered: the key is deleted, {<lock>}:freed says when, the lock comes due in the ready set of each
//     queue with a line, and an idle server is woken. For 50 ms goroutines that came later find the lock busy; then they may
//     take it, as perhaps nobody serves that queue. The first of them is told to ask again for that.
//
// When a holder dies its key expires, and all who wait ask again at that time: a goroutine was told how long the
// lock lives on, and the ready sets of tasks have the same time. The one that asks first gives the lock to the one that came
// first. Likewise rates: a release during a pause tells the first goroutine, which hears when the next start is allowed.
//
// A lock with a rule has so many permits, and keeps "siding-limited" in its own key while one is in use, so that a program
// which knows no rule finds it busy. A permit is taken, renewed, reserved and freed by the same code as a lock. One that was
// taken before it had a rule keeps all others out until it is released.
//
// An operator revokes a lease by changing the token to "siding:revoked-<unique>:<holder>". The holder cannot renew it, and so
// learns that it has lost; the lock is freed when the holder returns or when the TTL is over, and not before. A step does so with
// the lock of a task that has run out, for two seconds at most, until its server has said whether the task keeps its place.
//
// Calls of goroutines go together, see [committer]: the script commit.lua makes one after the other. Steps make theirs
// themselves.
//
// In a Cluster only goroutines meet here. No lock has lines there, as steps take locks of their own in the slots of their
// queues; so no script reaches for a key of another slot.
package lockredis
