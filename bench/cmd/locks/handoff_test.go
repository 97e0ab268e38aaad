package main

import (
	"context"
	"strings"
	"testing"
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
	if err == nil || !strings.Contains(err.Error(), "hold the lock at once") {
		t.Errorf("want two holders noticed, have %v", err)
	}
}
