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

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/stop"
)

func main() {
	a := &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	ctx := stop.Context(func(again os.Signal) {
		a.say("worker: received %v while draining: ending at once\n", again)
		_ = a.removeTemporary() // the process ends whatever it says
		os.Exit(exitFault)
	})
	redis.SetLogger(clientLogger{slog.Default()})
	os.Exit(a.run(ctx, os.Args[1:]))
}

// clientLogger keeps what the Redis client says to itself: it repeats, with
// each attempt, what the errors of the calls say.
type clientLogger struct{ log *slog.Logger }

func (l clientLogger) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
