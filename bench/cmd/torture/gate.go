package main

import (
	"context"
	"net"

	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A gate is the way of one worker to the server, which can be cut.
type gate struct {
	line   delay.Line
	addr   string
	cancel context.CancelFunc
	closed chan error // one of the proxy, and then nil
}

// newGate returns an open gate at an address of its own.
func newGate(ctx context.Context, network, server string) (*gate, error) {
	g := &gate{line: delay.Line{Network: network, Server: server}}
	return g, proc.OnFreePorts(func() (err error) {
		if g.addr, err = proc.FreeAddr(ctx); err != nil {
			return err
		}
		return g.open(ctx)
	})
}

func (g *gate) open(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", g.addr)
	if err != nil {
		return err
	}
	ctx, g.cancel = context.WithCancel(ctx)
	closed := make(chan error, 1)
	g.closed = closed
	go func() {
		closed <- g.line.Serve(ctx, listener)
		close(closed)
	}()
	return nil
}

// close cuts all connections and refuses new ones, until open. A gate that is closed stays so.
func (g *gate) close() error {
	g.cancel()
	return <-g.closed
}
