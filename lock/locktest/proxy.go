package locktest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

// A Proxy passes TCP connections on to a server and can make the network in between fail. The
// faults hold for present connections and for new ones.
type Proxy struct {
	// Addr is where it listens, "127.0.0.1:port".
	Addr string

	target    string
	listener  net.Listener
	blackHole atomic.Bool
	swallow   atomic.Bool
	delay     atomic.Int64 // a time.Duration
	running   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
}

// NewProxy starts a proxy to target, closed at the test's cleanup. While
// nobody listens at target, connections are accepted and closed at once.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		Addr:     listener.Addr().String(),
		target:   target,
		listener: listener,
		links:    make(map[*link]struct{}),
	}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Cut closes all connections; new ones are accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// BlackHole makes the proxy accept connections and bytes as before, and pass nothing on, like a
// network that loses every packet. Switched off, it cuts all connections: streams with a hole in
// them are of no use.
func (p *Proxy) BlackHole(on bool) { p.fault(&p.blackHole, on) }

// SwallowReplies passes requests on and drops what the server answers: it acts,
// and the client cannot know. Switched off, it cuts all connections.
func (p *Proxy) SwallowReplies(on bool) { p.fault(&p.swallow, on) }

func (p *Proxy) fault(flag *atomic.Bool, on bool) {
	if on {
		flag.Store(true)
		return
	}
	if flag.Load() {
		p.Cut() // before, or what was held back just now would pass
		flag.Store(false)
		p.Cut() // connections made meanwhile
	}
}

// Delay holds back every piece of the server's answers for d. So the server has acted long before
// its client hears of that. With 0, later answers are not held back.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// close ends everything and waits for it.
func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client was gone before it was accepted
		}
		l := newLink(conn)
		if !p.add(l) {
			l.close()
			return
		}
		p.running.Go(func() {
			defer p.remove(l)
			p.serve(l)
		})
	}
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	delete(p.links, l)
}

// serve returns when either end of the connection is closed, or it was cut.
func (p *Proxy) serve(l *link) {
	var d net.Dialer
	server, err := d.DialContext(l.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	// Closes the server's end when the link is cut, also between the dial and now.
	stop := context.AfterFunc(l.ctx, func() { _ = server.Close() })
	defer stop()
	defer server.Close()

	var replies sync.WaitGroup
	replies.Go(func() {
		defer l.close()
		pass(l.client, server, func() bool {
			if d := time.Duration(p.delay.Load()); d > 0 {
				_ = sleep.For(l.ctx, d)
			}
			return !p.blackHole.Load() && !p.swallow.Load()
		})
	})
	pass(server, l.client, func() bool { return !p.blackHole.Load() })
	l.close()
	replies.Wait()
}

// pass copies from src to dst what lets, asked for each piece, lets through.
func pass(dst io.Writer, src io.Reader, lets func() bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && lets() {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A link is one client's connection through the proxy.
type link struct {
	client net.Conn
	ctx    context.Context //nolint:containedctx // the life of the connection, not of a call
	cancel context.CancelFunc
}

func newLink(client net.Conn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{client: client, ctx: ctx, cancel: cancel}
}

// close cuts the link; it may be called again.
func (l *link) close() {
	l.cancel()
	_ = l.client.Close()
}
