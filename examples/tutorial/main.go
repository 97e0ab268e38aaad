// Command tutorial is the worker of the tutorial: it ships the orders of an invented shop.
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/worker"
)

// Ship is a task: pack an order and hand it to the carrier. Two of them must not pack one order.
type Ship struct {
	Order   string `json:"order"`
	Seconds int    `json:"seconds"` // how long it takes
}

// Kind names the handler.
func (Ship) Kind() string { return "order:ship" }

// Resource names what no two tasks may have at once.
func (s Ship) Resource() string { return "order:" + s.Order }

func ship(ctx context.Context, s Ship) error {
	log := slog.With("order", s.Order, "task", queue.InfoFrom(ctx).ID, "fence", lock.Fence(ctx, s.Resource()))
	log.InfoContext(ctx, "packing")
	packed := time.NewTimer(time.Duration(s.Seconds) * time.Second)
	defer packed.Stop()
	select {
	case <-packed.C:
		log.InfoContext(ctx, "shipped")
		return nil
	case <-ctx.Done(): // the lock is lost, or the worker ends
		return context.Cause(ctx)
	}
}

func main() {
	worker.Main(func(s *queue.Server) { queue.Handle(s, ship) })
}
