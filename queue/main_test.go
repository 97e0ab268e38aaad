package queue_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/queue"
)

func TestMain(m *testing.M) {
	loop := flag.Bool("loop", false, "run servers on package engine, which does not have all yet")
	flag.Parse()
	if *loop {
		queue.OnLoop()
	}
	// The pool of a client whose server was down looks every second whether the server is back.
	// Only then does the pool see that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
