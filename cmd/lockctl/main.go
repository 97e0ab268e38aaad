// Command lockctl is for operators: it shows who holds which lock, who waits, and why a task does
// not run. It also takes a lock from its holder, and looks for faults of the whole installation.
//
//	lockctl list --watch
//	lockctl why 77ab09
//	lockctl release order:536365 --reason 'the worker hangs, see the incident of today'
//	lockctl doctor
//
// Each command explains itself with --help.
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
		_, _ = fmt.Fprintf(os.Stderr, "lockctl: received %v again: ending at once\n", again)
		os.Exit(cli.StatusFault)
	})
	logging.Disable() // the errors say what the Redis client would write to stderr
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	os.Exit(a.run(ctx, os.Args[1:]))
}
