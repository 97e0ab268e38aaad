// Command after audits orders on Siding.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// An audit is the payload of the tasks "order:audit".
type audit struct {
	Order string `json:"order"`
}

// auditOrder reads, decides and writes. Two of them on one order undo each other's work.
func auditOrder(ctx context.Context, t *asynq.Task) error {
	var a audit
	if err := json.Unmarshal(t.Payload(), &a); err != nil {
		return errors.Join(err, asynq.SkipRetry)
	}
	slog.InfoContext(ctx, "audit begins", "order", a.Order)
	defer slog.InfoContext(ctx, "audit ends", "order", a.Order)
	work := time.NewTimer(200 * time.Millisecond)
	defer work.Stop()
	select {
	case <-work.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// orderOf names the resource of a task. No two tasks of one resource run at once.
func orderOf(payload []byte) (string, error) {
	var a audit
	err := json.Unmarshal(payload, &a)
	return "order:" + a.Order, err
}

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of Redis")
	flag.Parse()
	mux := asynq.NewServeMux()
	mux.HandleFunc("order:audit", auditOrder)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := queue.NewServer(asynq.RedisClientOpt{Addr: *redis}, queue.ServerConfig{
		Asynq:     asynq.Config{Concurrency: 10},
		Handler:   mux,
		Resources: map[string]queue.ResourceFunc{"order:audit": orderOf},
	})
	if err == nil {
		err = server.Run(ctx)
	}
	if err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}
