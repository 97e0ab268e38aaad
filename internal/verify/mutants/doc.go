// Package mutants shows of tests that they find the mistakes that they are there for: it
// makes each of them in a copy of the package, one after the other, and runs the tests.
package mutants
