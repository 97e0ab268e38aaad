// Package chaos shows that no task is lost or done twice, whatever fails.
//
// The test of the package runs a fleet of worker processes on real Redis servers, and keeps the
// fleet busy with tasks that want few resources. The test injects faults at random (see [Plan]),
// and waits until all is done. Then it checks everything that is known of the run (see [Check]).
// That is the tasks that were enqueued, each process's [Journal], the fenced [Ledger], and the rest
// in Redis. A kind of fault that never had an effect fails the run, as it shows nothing.
//
// A seed gives the same faults in the same order. The machine decides when exactly each comes and
// what it meets.
package chaos
