// Package redistest runs real Redis servers for tests: a single one, with or
// without TLS, a Cluster, or a master with replicas and sentinels. For a
// network that fails see lock/locktest.
//
// Every server listens on a free port of 127.0.0.1, never 6379, and works in a
// fresh temporary folder. It is killed at the test's cleanup and, on Linux,
// also when the test process dies without one. What it wrote to its log is
// shown when the test fails. Where redis-server is missing the test is skipped,
// or fails if the environment variable CI is set.
//
// The helpers end the test themselves when something goes wrong, so they must
// be called from the test's own goroutine, as [testing.T.FailNow] demands.
package redistest
