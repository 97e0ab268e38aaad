// Package chaos shows that no task is lost or done twice, whatever fails.
//
// Its test runs a fleet of worker processes on real Redis servers, and keeps it busy with tasks
// that want few resources. It injects faults at random (see [Plan]), waits until all is done, and
// then looks at everything that is known of the run (see [Check]): the tasks that were enqueued,
// each process's [Journal], the fenced [Ledger], and what is left in Redis.
//
// A seed gives the same faults in the same order. The machine decides when exactly each comes and
// what it meets.
package chaos
