package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// oneRequest is for how long after the first signal another belongs to the same request. The
// command timeout, for one, sends two: to its child and to the child's group, which has it, too.
const oneRequest = 500 * time.Millisecond

// Context returns a context that ends, with the signal in its cause, once the process is asked
// to end by SIGINT or SIGTERM. If it is asked again, half a second later or more, again is called.
//
// A broken pipe is no signal any more from then on, but an error of the write. So the program itself
// says how it ends when its reader has gone away.
func Context(again func(os.Signal)) context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE)
	go heed(signals, end, again)
	return ctx
}

// heed waits for the first signal and then for one that is not of the same request.
func heed(signals <-chan os.Signal, end context.CancelCauseFunc, again func(os.Signal)) {
	end(fmt.Errorf("received %v", <-signals))
	asked := time.Now()
	for s := range signals {
		if time.Since(asked) >= oneRequest {
			again(s)
			return
		}
	}
}
