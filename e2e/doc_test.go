// Package e2e runs the built programs as a user would: real processes, a real
// Redis, the ledger in a file, and a check of what came of it.
package e2e
