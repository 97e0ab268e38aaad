// Package e2e runs the built programs as a user would, with real processes, a real Redis and a
// ledger in a file, and checks the results.
package e2e
