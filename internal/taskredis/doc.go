// Package taskredis keeps tasks and their places in Redis. The tasks are asynq's: its keys, its
// states, its encoding, so its clients, its Inspector and its dashboard read and write the same data.
//
// Beside asynq's keys a queue has a few of its own, in the same slot of a Cluster:
//
//	siding:{<queue>}:line:<lock>   the tasks of the queue that wait for a lock: id by ticket
//	siding:{<queue>}:ready         the locks that have such a line, by the time (µs) at which
//	                               somebody should look at them next
//	siding:{<queue>}:notify        a list; an element wakes one idle server
//	siding:{<queue>}:held          the locks whose line is held by a task that has failed, by when it
//	                               goes on (µs); +inf for one that has stopped
//	siding:{<queue>}:debounce:<kind>:<digest>
//	                               which of the debounced tasks with one key came last: its id; due and first, when it is
//	                               due, and when the first of those came that have replaced each other, in Unix seconds;
//	                               replaced, the id of the one that it has replaced
//
// All queues together, or in a Cluster each of them, as siding:{<queue>}:slots, have
//
//	siding:slots                   when a server of each queue had a free slot last
//	siding:step:<session>-<lane>   what the last step of a server came to
//	siding:wake:<session>          a list by which a server ends its own wait for notify
//
// A lock that tasks wait for knows their queues. The keys of locks, and the functions that take and free them, are those of
// package lockredis: goroutines wait for the same locks, and there is one order of arrival for both.
//
// A ticket is the time, in microseconds of Redis' clock, at which the task first came to its resource.
// It is the task's place. The invariant behind everything is: a lock with a line in a queue is in the
// ready set of that queue. So whatever gets lost, somebody looks at the line again, and no wake-up
// has to arrive for that.
//
// An [Enqueuer] stores tasks. Beside the task itself, which only Go reads, it writes into the task's hash what our scripts
// have to know of it:
//
//	siding_resource   what it needs the lock of; not there for none, or one that only the server can tell; of several a line
//	                  break before each name
//	siding_priority   its head start in the line, 1 to 9; not there for 0
//	siding_deadline   when it is given up, Unix seconds; not there for never
//	siding_kind       its type, if it has a resource
//	siding_once       there if it has a resource and no retries
//	siding_policy     there if it has a policy of its own
//	siding_debounce   the key of its debounce, if it has one: only a task that names the key is replaced
//	siding_call       which call stored it, so that the same call sent again knows its task
//
// When a server takes the task it adds what identifies the attempt, siding_attempt and siding_lock, and the task's place,
// siding_ticket; and siding_ttl, for how long the attempt takes and renews its lock, ms. siding_lock has several locks, or the
// keys by which they are held, with a line break between two of them. A task that waits has siding_until, its score in asynq's
// retry set. siding_parked, siding_crashes and siding_losses count, and siding_text is the sentence for people that was
// appended to the message. siding_wait_ends is when the wait must end by the policy of the task, Unix seconds, and siding_equal
// is the digest that equal tasks share. siding_unique_until is when its uniqueness was to end that its waiting has prolonged,
// Unix seconds. siding_begun_at is the ticket at which the handler may have begun, and siding_began the attempt that has written down
// that it begins, as the task has no retries. siding_held is there while the task holds its line: until when, us, or 'stop'.
//
// [Steps.Step] does nearly all the work: one script that ends attempts, frees their locks, puts crashed tasks
// back, and takes the tasks for the slots that are free. step.lua says in which order, and what its parts do is in files
// of their own. An [Upkeep] has the calls for what no server that takes tasks has an occasion for. One server makes them for all that have the same queues:
//
//	siding:upkeep:<hash of the queues>   the session of that server; in a Cluster it is siding:{<queue>}:upkeep
package taskredis
