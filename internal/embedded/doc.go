// Package embedded runs an in-process Redis on a loopback port, so that Siding
// can be tried, and developed against, on a machine that has no Redis.
//
// It is miniredis with a running clock. miniredis itself keeps none: its TTLs
// stand still until somebody moves them. A goroutine moves them here, in steps.
// A key may therefore run out up to one step (see [Server]) before or after its
// time; locks survive that, as their holders give up a margin earlier.
//
// What it is not: it stores nothing on disk, forgets everything when the
// process ends, knows no cluster and no replication, and its clock costs time in
// proportion to the number of keys. Up to some 10,000 unfinished tasks are
// fine; it is no store for production.
package embedded
