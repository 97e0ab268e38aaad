// Package verify divides the tests. Every change must pass make test. make verify takes an hour and
// finds rare faults.
package verify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	// verifyEnv is "1" in make verify.
	verifyEnv = "SIDING_VERIFY"
	// seedEnv names the seed that a test repeats.
	seedEnv = "SIDING_SEED"
	// ordersEnv names a real order file for tests.
	ordersEnv = "SIDING_ORDERS"
)

// All reports whether this is make verify: tests that explore do all they can.
func All() bool { return os.Getenv(verifyEnv) == "1" }

// Long skips a test that takes more than five seconds, outside of make verify. With CI set, a test
// may be skipped for no other reason.
func Long(tb testing.TB) {
	tb.Helper()
	if !All() {
		tb.Skip("takes long: make verify runs it (" + verifyEnv + "=1)") //nolint:forbidigo // this is what others call
	}
}

// Seed returns the seed of a test with random input. That is a new number each time, or that of the
// environment variable SIDING_SEED. Seed logs the number. If the test fails, Seed also logs the
// command that repeats it, with those of the variables that are set.
func Seed(tb testing.TB, variables ...string) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("%s: want a number from 0 to 2^64-1, have %q", seedEnv, text)
		}
	}
	tb.Logf("seed %d", seed)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("to repeat it: %s", command(tb.Name(), seed, append(variables, verifyEnv, ordersEnv)))
		}
	})
	return seed
}

// command returns the command that runs the test again, in its package's folder.
func command(name string, seed uint64, variables []string) string {
	words := []string{fmt.Sprintf("%s=%d", seedEnv, seed)}
	for _, name := range variables {
		if value := os.Getenv(name); value != "" {
			words = append(words, name+"="+quote(value))
		}
	}
	if folder, err := os.Getwd(); err == nil {
		words = append([]string{"cd", quote(folder), "&&"}, words...)
	}
	return strings.Join(append(words, "go test -count=1 -run", quote(Pattern(name))), " ")
}

// Pattern returns the pattern of go test's -run for the test of that name alone.
func Pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// quote returns a text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
