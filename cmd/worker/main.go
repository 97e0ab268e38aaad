// Command worker runs a member of a fleet that works off Siding's tasks. It
// reads its settings from a file, the environment and flags, serves a dashboard
// and probes, and drains when it is asked to end. With --demo it needs nothing but
// itself: see worker --help.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, end := context.WithCancelCause(context.Background())
	// Room for two: the second one must not be missed while the first is heeded.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		end(fmt.Errorf("received %v", <-signals))
		again := <-signals
		// Not left to the signal itself, which does nothing to the first
		// process of a container.
		_, _ = fmt.Fprintf(os.Stderr, "worker: received %v while draining: ending at once\n", again)
		os.Exit(exitFault)
	}()
	redis.SetLogger(clientLogger{slog.Default()})
	a := &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// clientLogger keeps what the Redis client says to itself: it repeats, with
// each attempt, what the errors of the calls say.
type clientLogger struct{ log *slog.Logger }

func (l clientLogger) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
