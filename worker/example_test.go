package worker_test

import (
	"context"
	"fmt"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/worker"
)

// AuditOrder is a task of the user's own.
type AuditOrder struct {
	Order string `json:"order"`
}

func (AuditOrder) Kind() string       { return "order:audit" }
func (t AuditOrder) Resource() string { return "order:" + t.Order }

func audit(ctx context.Context, t AuditOrder) error {
	fmt.Println("auditing", t.Order, "with fence", lock.Fence(ctx, t.Resource()))
	return nil
}

// The main function of a worker. Run the program with --help.
func ExampleMain() {
	worker.Main(func(s *queue.Server) { queue.Handle(s, audit) })
}
