package main

import (
	"fmt"
	"os"

	"github.com/redis/go-redis/v9/logging"

	"github.com/sidingq/siding/internal/stop"
)

func main() {
	ctx := stop.Context(func(again os.Signal) {
		_, _ = fmt.Fprintf(os.Stderr, "enqueue: received %v again: ending at once\n", again)
		os.Exit(exitFault)
	})
	// What the Redis client would write to stderr by itself, the errors say too.
	logging.Disable()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
