package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for an end; once it is being heeded, a second one
	// ends the process as if nobody listened.
	context.AfterFunc(ctx, stop)
	// What the Redis client would write to stderr by itself, the errors say too.
	logging.Disable()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
