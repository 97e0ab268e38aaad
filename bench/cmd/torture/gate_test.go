package main

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A gate may be cut when its trial ends, which closes it once more.
func TestGateIsClosedTwice(t *testing.T) {
	t.Parallel()
	g := expect.Value(newGate(t.Context(), "tcp", "127.0.0.1:1"))(t)
	for range 2 {
		expect.OK(t, g.close())
	}
	expect.OK(t, g.open(t.Context()))
	expect.OK(t, g.close())
}
