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
	life      context.Context //nolint:containedctx // that of the proxy, not of a call

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // that of all connections until the next Cut
	cut context.CancelFunc
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
	p := &Proxy{Addr: listener.Addr().String(), target: target, listener: listener}
	var end context.CancelFunc
	p.life, end = context.WithCancel(context.Background())
	p.ctx, p.cut = context.WithCancel(p.life)
	p.running.Go(p.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		end()
		p.running.Wait()
	})
	return p
}

// Cut closes all connections; new ones are accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	p.ctx, p.cut = context.WithCancel(p.life)
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

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client was gone before it was accepted
		}
		p.mu.Lock()
		ctx := p.ctx
		p.mu.Unlock()
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

// serve returns when either end of the connection is closed, or ctx has ended, as it was cut.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()

	var replies sync.WaitGroup
	replies.Go(func() {
		defer cancel()
		pass(client, server, func() bool {
			if d := time.Duration(p.delay.Load()); d > 0 {
				_ = sleep.For(ctx, d)
			}
			return !p.swallow.Load() && p.open(ctx)
		})
	})
	pass(server, client, func() bool { return p.open(ctx) })
	cancel()
	replies.Wait()
}

// open reports whether bytes pass. That a connection was cut is seen before the fault is seen to be over.
func (p *Proxy) open(ctx context.Context) bool { return !p.blackHole.Load() && ctx.Err() == nil }

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
