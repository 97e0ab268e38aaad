// Package redistest runs real Redis servers for tests and benchmarks: one, with or without TLS, a
// Cluster, or a master with replicas and sentinels. Package lock/locktest has a network that fails.
//
// Every server listens on a free port of 127.0.0.1, never 6379. Package proc says how it ends,
// and what happens without redis-server.
//
// The helpers of tests end the test when something goes wrong. So call them from the test's own
// goroutine, as [testing.T.FailNow] demands.
package redistest
