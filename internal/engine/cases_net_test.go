package engine

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
)

// A lateNet is a network on which what a client sends may arrive late. It arrives also if the client has hung up by then,
// as on a real one.
type lateNet struct {
	mu      sync.Mutex
	delay   time.Duration
	arrived map[string]time.Time // when the server first had a text, of those that are watched for
}

func (n *lateNet) set(delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = delay
}

// watch has the network note when a request with a text arrives that also says "done".
func (n *lateNet) watch(texts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrived = make(map[string]time.Time)
	for _, text := range texts {
		n.arrived[text] = time.Time{}
	}
}

func (n *lateNet) arrival(text string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.arrived[text]
}

// client connects through the network.
func (n *lateNet) client(f *fleet) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: f.addr, ContextTimeoutEnabled: true, Dialer: n.dial})
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (n *lateNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &lateConn{Conn: conn, net: n, pieces: make(chan latePiece, 4096), closed: make(chan struct{})}
	go c.deliver()
	return c, nil
}

type latePiece struct {
	due  time.Time
	data []byte
}

type lateConn struct {
	net.Conn

	net    *lateNet
	pieces chan latePiece
	closed chan struct{}
	once   sync.Once
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	due := time.Now().Add(c.net.delay)
	c.net.mu.Unlock()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case c.pieces <- latePiece{due, bytes.Clone(p)}:
		return len(p), nil
	}
}

// Close hangs up once what was sent has arrived.
func (c *lateConn) Close() error {
	c.once.Do(func() {
		_ = c.SetReadDeadline(time.Now()) // nobody reads any more
		close(c.closed)
	})
	return nil
}

func (c *lateConn) deliver() {
	defer c.Conn.Close()
	for {
		var p latePiece
		select {
		case p = <-c.pieces:
		case <-c.closed:
			select {
			case p = <-c.pieces:
			default:
				return
			}
		}
		_ = sleep.For(context.Background(), time.Until(p.due))
		_, _ = c.Conn.Write(p.data)
		c.net.note(p.data)
	}
}

func (n *lateNet) note(data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for text, at := range n.arrived {
		if at.IsZero() && bytes.Contains(data, []byte(text)) && bytes.Contains(data, []byte("\r\ndone\r\n")) {
			n.arrived[text] = time.Now()
		}
	}
}
