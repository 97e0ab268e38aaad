// Command before audits orders on plain asynq.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
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

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of Redis")
	flag.Parse()
	mux := asynq.NewServeMux()
	mux.HandleFunc("order:audit", auditOrder)

	server := asynq.NewServer(asynq.RedisClientOpt{Addr: *redis}, asynq.Config{Concurrency: 10})
	err := server.Run(mux)
	if err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}
