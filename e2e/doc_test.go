// Package e2e runs the built programs as a user would, and checks the results. It has real
// processes, a real Redis, and a ledger in a file.
package e2e
