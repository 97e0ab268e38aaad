package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// Whoever enqueues tasks that no worker takes is told so, once for each queue.
func TestUnservedQueues(t *testing.T) {
	t.Parallel()
	at := redistest.Start(t)
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{at.Addr}}, queue.ServerConfig{
		Asynq:   asynq.Config{Queues: map[string]int{"orders": 1}},
		Logger:  slog.New(slog.DiscardHandler),
		Handler: asynq.NotFoundHandler(),
	})
	expect.OK(t, err)
	expect.OK(t, server.Start(t.Context()))
	t.Cleanup(func() { _ = server.Shutdown(context.WithoutCancel(t.Context())) })
	said := func(stdin string, args ...string) string {
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader(stdin), stdout: new(bytes.Buffer), stderr: &errs}
		expect.Equal(t, fmt.Sprintf("%q: status", args), a.run(t.Context(), append(args, "--redis", at.Addr)), cli.StatusOK)
		return errs.String()
	}
	task := []string{"task", "order:audit", "--payload", `{"order":"1"}`, "--queue"}
	// A server makes itself known soon after its start.
	expect.Eventually(t, "the server is known", func() bool { return said("", append(task, "orders")...) == "" })
	const want = "enqueue: no worker serves the queue oders now; its tasks wait for one\n"
	expect.Equal(t, "task", said("", append(task, "oders")...), want)
	line := `{"kind":"order:audit","payload":{"order":"1"},"queue":"`
	lines := line + "oders\"}\n" + line + "orders\"}\n" + line + "oders\"}\n"
	expect.Equal(t, "stream", said(lines, "stream"), want)
	expect.Equal(t, "dry run", said(lines, "stream", "--dry-run"), "")
}
