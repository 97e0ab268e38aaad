// Package delay puts a network between the programs of one machine. A proxy passes on every byte
// some time after its arrival.
package delay

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// pieceSize is how many bytes are read at once, at most. pending is how many pieces one direction
// of a connection holds. While it is full nothing is read, so the next pieces are larger.
const pieceSize, pending = 64 << 10, 4096

// A Line passes connections on to a server with a delay. The bytes of each direction of
// each connection stay in order, and do not wait for other connections. An end of one side,
// or of one direction, reaches the other side.
type Line struct {
	// OneWay is for how long each byte is held back, in either direction.
	OneWay time.Duration
	// Network and Server are the server's address: "tcp" and "127.0.0.1:6379", or "unix"
	// and a path.
	Network, Server string
}

// Serve passes on all connections that listener accepts, until ctx ends. Serve closes these and the
// listener before it returns.
func (l *Line) Serve(ctx context.Context, listener net.Listener) error {
	var links sync.WaitGroup
	defer links.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		client, err := listener.Accept()
		switch {
		case err == nil:
			links.Go(func() { l.link(ctx, client) })
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

// link serves one client until both directions have ended, or ctx has.
func (l *Line) link(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, l.Network, l.Server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	hangUp := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, hangUp)()
	var directions sync.WaitGroup
	pass := func(from, to net.Conn) {
		directions.Go(func() {
			if err := l.pass(ctx, from, to); err != nil {
				hangUp()
			}
		})
	}
	pass(client, server)
	pass(server, client)
	directions.Wait()
}

// A piece is what was read at once.
type piece struct {
	due  time.Time // when it is passed on
	data []byte    // none at the end of the stream
}

// pass passes on what one side sends, and then its end.
func (l *Line) pass(ctx context.Context, from, to net.Conn) error {
	clock, err := newClock(ctx)
	if err != nil {
		return err
	}
	defer clock.close()
	pieces := make(chan piece, pending)
	go l.receive(from, pieces)
	for p := range pieces {
		if err == nil { // else the rest is of no use
			err = p.deliver(clock, to)
		}
		if err != nil {
			_ = from.Close() // so that receive ends
		}
	}
	return err
}

// receive reads what one side sends, up to its end of whatever kind.
func (l *Line) receive(from net.Conn, pieces chan<- piece) {
	defer close(pieces)
	buf := make([]byte, pieceSize)
	for {
		n, err := from.Read(buf)
		due := time.Now().Add(l.OneWay)
		if n > 0 {
			pieces <- piece{due, bytes.Clone(buf[:n])}
		}
		if err != nil {
			pieces <- piece{due, nil}
			return
		}
	}
}

func (p piece) deliver(clock *clock, to net.Conn) error {
	if err := clock.until(p.due); err != nil {
		return err
	}
	if len(p.data) > 0 {
		_, err := to.Write(p.data)
		return err
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return to.Close()
}
