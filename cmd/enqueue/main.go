// Command enqueue stores tasks in Redis for Siding's workers.
//
//	enqueue task order:audit --payload '{"order":"536365"}'
//	enqueue stream tasks.jsonl
//	enqueue orders online_retail.csv.gz --dry-run
//
// Each command explains itself with --help, also how it goes on after an
// interrupt and enqueues nothing twice.
package main

import (
	"fmt"
	"os"

	"github.com/redis/go-redis/v9/logging"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/stop"
)

func main() {
	ctx := stop.Context(func(again os.Signal) {
		_, _ = fmt.Fprintf(os.Stderr, "enqueue: received %v again: ending at once\n", again)
		os.Exit(cli.StatusFault)
	})
	logging.Disable() // the errors say what the Redis client would write to stderr
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	os.Exit(a.run(ctx, os.Args[1:]))
}
