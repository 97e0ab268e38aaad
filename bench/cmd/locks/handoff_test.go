package main

import (
	"context"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// open is a lock that everybody gets.
type open struct{}

func (open) Lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
func (open) Close() error { return nil }

// TestTwoHolders: a contender that does not exclude is found out.
func TestTwoHolders(t *testing.T) {
	t.Parallel()
	_, _, err := pass(t.Context(), []client{open{}}, 3, 1000)
	expect.That(t, err != nil && strings.Contains(err.Error(), "hold the lock at once"), "want two holders noticed, have %v", err)
}
