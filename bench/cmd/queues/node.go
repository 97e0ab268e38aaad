package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/bench/node"
)

func nodeContenders() []contender {
	const many = 100 // tasks that are enqueued at once
	of := func(queue string, delay time.Duration) func(context.Context, course) (outcome, error) {
		return func(ctx context.Context, c course) (outcome, error) {
			o, err := node.Run(ctx, c.node, node.Course{
				Queue: queue, Redis: c.redis, Batch: many, Delay: delay, Plan: c.plan, Limit: c.limit, Begin: c.begin, End: c.end,
			})
			return outcome{Trace: o.Trace, sent: o.Sent, cpu: o.CPU}, err
		}
	}
	var all []contender
	for _, delay := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		all = append(all, contender{
			name: fmt.Sprintf("bullmq-%v", delay), modules: []string{"bullmq"}, needs: needsNode, limits: true, rates: true,
			config: fmt.Sprintf("SET NX with TTL 30 s, moveToDelayed(%v) if it is taken; for a limit a worker with that concurrency, for a rate its limiter, both without a lock; enqueues %d with addBulk", delay, many),
			run:    of("bullmq", delay),
		})
	}
	return append(all, contender{
		name: "groupmq", modules: []string{"groupmq"}, needs: needsNode, limits: true,
		config: fmt.Sprintf("a group per key, no lock; for a limit so many groups per key, in turn; %d calls of add at once", many),
		run:    of("groupmq", 0),
	})
}
