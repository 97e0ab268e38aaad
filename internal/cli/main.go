package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// Main runs a program and ends the process with its exit status. A signal ends the context; a second one
// ends the process at once.
func Main(name string, run func(ctx context.Context, args []string) int) {
	ctx := Context(func(again os.Signal) {
		time.AfterFunc(time.Second, func() { os.Exit(StatusFault) }) // also if nobody reads standard error
		_, _ = fmt.Fprintf(os.Stderr, "%s: received %v again: ending at once\n", name, again)
		os.Exit(StatusFault)
	})
	logging.Disable() // the errors say what the Redis client would write to stderr
	os.Exit(run(ctx, os.Args[1:]))
}
