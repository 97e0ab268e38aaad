// Package chaos shows that nothing is lost and nobody doubled, whatever fails.
//
// Its test runs a fleet of worker processes on real Redis servers, keeps it busy
// with tasks that want few resources, injects faults at random (see [Plan]), waits
// until all is done, and then looks at everything that is known of the run (see
// [Check]): what was enqueued, what each process wrote into its [Journal], what the
// fenced [Ledger] holds, and what is left in Redis.
//
// The faults of a seed are the same ones in the same order. When exactly each
// comes and what it meets is up to the machine.
package chaos
