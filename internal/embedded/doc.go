// Package embedded runs a Redis inside the process, on a loopback port, to try
// Siding on a machine that has no Redis.
//
// This Redis is miniredis with a running clock. The TTLs of miniredis stand still until somebody
// moves them: a goroutine does so here, in steps. A key may therefore expire up to one step (see
// [Server]) before or after its time. Locks survive that, as their holders stop a safety margin
// earlier.
//
// An embedded Redis stores nothing on disk, forgets everything when the process ends, and knows no
// cluster and no replication. The clock costs time in proportion to the number of keys: up to some
// 10,000 unfinished tasks are fine. Do not use an embedded Redis in production.
package embedded
