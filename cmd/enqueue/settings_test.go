package main

import (
	"context"
	"testing"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// Whatever is wrong with Redis, the program says so and ends soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"task", "order:audit", "--payload", `{"order":"1"}`}, {"stream"}}
	clitest.Away(t, "enqueue", " (without a Redis, worker --embedded", commands, func(t *testing.T, args ...string) (string, int) {
		t.Helper()
		have := enqueue(t, `{"kind":"order:audit","payload":{"order":"1"}}`, args...)
		return have.err, have.status
	})
}

// Each setting may come from another place.
func TestSettings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret")
	file := writeFile(t, "some.yaml", "redis:\n  addrs: ["+server.Addr+"]\n")
	have := enqueueIn(context.WithoutCancel(t.Context()), []string{"SIDING_REDIS_PASSWORD=secret"}, "", "task", "order:audit", "--id", "x", "--payload", `{"order":"1"}`, "--config", file)
	wantResult(t, result{"x\n", "", cli.StatusOK}, have)
}
