// Package expect says what a test expects: of a value, of an error, or of what becomes true in the end.
package expect

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// OK ends the test if something that it needs has failed.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Value returns the result of a call that the test needs: expect.Value(f())(t) ends the test if f has failed.
func Value[T any](result T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		OK(tb, err)
		return result
	}
}

// Err returns the error of a call of which nothing else is expected.
func Err[T any](_ T, err error) error { return err }

// That fails the test unless ok. The rest says what is wanted, and what there is.
func That(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Errorf(format, args...)
	}
}

// Need is [That] for what the rest of the test needs: it ends the test.
func Need(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Fatalf(format, args...)
	}
}

// Equal compares two values.
func Equal[T comparable](tb testing.TB, what string, have, want T) {
	tb.Helper()
	if have != want {
		tb.Errorf("%s: want %v, have %v", what, want, have)
	}
}

// Is expects an error that matches another.
func Is(tb testing.TB, what string, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("%s: want %v, have %v", what, target, err)
	}
}

// Same compares two values of any kind by their contents.
func Same(tb testing.TB, what string, have, want any, opts ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, have, opts...); diff != "" {
		tb.Errorf("%s (-want +have):\n%s", what, diff)
	}
}
