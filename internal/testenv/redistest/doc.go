// Package redistest runs real Redis servers for tests and benchmarks: a single one,
// with or without TLS, a Cluster, or a master with replicas and sentinels. For a
// network that fails see lock/locktest.
//
// Every server listens on a free port of 127.0.0.1, never 6379. See package proc for
// how it ends, and what happens where redis-server is missing.
//
// The helpers of tests end the test themselves when something goes wrong, so they must
// be called from the test's own goroutine, as [testing.T.FailNow] demands.
package redistest
