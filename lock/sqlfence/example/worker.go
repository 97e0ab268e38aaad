//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// ttl is short, so that nobody has to wait long for the end of a lock.
const ttl = 3 * time.Second

// work is a worker process. It sells until ctx ends, and says so to out under its name. Between
// reading and writing it waits for a line of in, or for the end of in.
func work(ctx context.Context, name, redisAddr string, shop *shop, in io.Reader, out io.Writer) error {
	cfg := queue.ServerConfig{
		Lock:   lock.Config{TTL: ttl},
		Logger: slog.New(slog.DiscardHandler), // out says enough
	}
	if shop.unfenced {
		// A task that lost its lock runs again soon, as a rule. Here it would hide the damage.
		cfg.Recovery.Losses = -1
	}
	server, err := queue.NewServer(queue.RedisOpt(redis.UniversalOptions{Addrs: []string{redisAddr}}), cfg)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(out, name+" "+format+"\n", args...) }
	lines := bufio.NewReader(in)
	queue.Handle(server, func(ctx context.Context, t Sell) error {
		onHand, err := shop.read(ctx, t)
		if err != nil {
			return err
		}
		say("sells %d of %d pieces, with fence %d", t.Pieces, onHand, lock.Fence(ctx, t.Resource()))
		_, _ = lines.ReadString('\n') // at its end the worker just goes on
		// A handler may look at its context before it writes, and be paused right after that. This
		// one does not look, which comes to the same.
		if err := shop.write(context.WithoutCancel(ctx), t, onHand-t.Pieces); err != nil {
			say("is refused: %v", err)
			return err
		}
		say("has written %d pieces", onHand-t.Pieces)
		return nil
	})
	return server.Run(ctx)
}
