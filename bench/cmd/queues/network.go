package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/report"
)

// longestRTT is more than workers and their Redis have between them.
const longestRTT = 100 * time.Millisecond

// A network lies between each contender and its servers, the same for all. The zero value is
// none.
type network struct {
	rtt   time.Duration // for so long proxies hold the bytes of a round trip back; it takes a bit longer, as tried says
	tried []trial       // of each server
}

// A trial is how long an empty query takes without the network and with it, in the middle.
type trial struct {
	server        string
	without, with time.Duration
}

// Called returns the name of the server.
func (t trial) Called() string { return t.server }

func (t trial) String() string {
	return fmt.Sprintf("%s answers in %.3f ms without and in %.3f ms with it", t.server, report.MS(t.without), report.MS(t.with))
}

// try times an empty query to a server, near and far.
func (n *network) try(ctx context.Context, server backend.Server) (trial, error) {
	far, closeLink, err := n.link(ctx, server)
	if err != nil {
		return trial{}, err
	}
	defer closeLink()
	without, err := n.roundTrip(ctx, server)
	if err != nil {
		return trial{}, err
	}
	with, err := n.roundTrip(ctx, far)
	return trial{server.Name(), without, with}, err
}

// link returns the server as contenders reach it, and a function to call when they are done.
func (n *network) link(ctx context.Context, server backend.Server) (far backend.Server, closeLink func(), err error) {
	if n.rtt == 0 {
		return server, func() {}, nil
	}
	kind, addr, err := server.Listens()
	if err != nil {
		return nil, nil, err
	}
	proxy, err := delay.Start(ctx, delay.Line{OneWay: n.rtt / 2, Network: kind, Server: addr})
	if err != nil {
		return nil, nil, err
	}
	if far, err = server.At(proxy.Addr); err != nil {
		proxy.Stop()
		return nil, nil, err
	}
	return far, proxy.Stop, nil
}

// roundTrip returns that of an empty query, in the middle of many, or of some where each
// takes long.
func (n *network) roundTrip(ctx context.Context, server backend.Server) (time.Duration, error) {
	const many, some, budget = 300, 20, 300 * time.Millisecond
	count := many
	if n.rtt > 0 {
		count = max(some, min(many, int(budget/n.rtt)))
	}
	took, err := server.RoundTrips(ctx, count)
	if err != nil {
		return 0, err
	}
	return report.Percentile(took, 50), nil
}

// String tells readers what it adds, and what that was seen to be.
func (n *network) String() string {
	if n.rtt == 0 {
		return "none, all on one machine"
	}
	parts := []string{fmt.Sprintf("%v more for each round trip", n.rtt)}
	for _, t := range n.tried {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "; ")
}

// servers returns the names of those that it was tried on.
func (n *network) servers() []string {
	return contest.Names(n.tried)
}
