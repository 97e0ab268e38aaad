package delay

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestMain fails if a test leaves goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that waits for what does not come.
const patience = time.Minute

// listen returns a listener on a free port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	l := expect.Value(config.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve starts a server that gives each connection to handle and then closes it. The result is the
// server's address.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// proxy starts a Line to server and returns its address, and what ends it.
func proxy(t *testing.T, oneWay time.Duration, server string) (addr string, end func()) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- (&Line{OneWay: oneWay, Network: "tcp", Server: server}).Serve(ctx, l) }()
	end = sync.OnceFunc(func() {
		cancel()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-timer.C:
			t.Error("want the proxy to end when it is asked to")
		}
	})
	t.Cleanup(end)
	return l.Addr().String(), end
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	var dialer net.Dialer
	conn := expect.Value(dialer.DialContext(t.Context(), "tcp", addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	expect.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	tcp, ok := conn.(*net.TCPConn)
	expect.Need(t, ok, "want a TCP connection, have %T", conn)
	return tcp
}

// TestAllArrivesInOrder: the client ends its direction, and the server answers only then.
func TestAllArrivesInOrder(t *testing.T) {
	t.Parallel()
	addr, _ := proxy(t, time.Millisecond, serve(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(all)
	}))
	conn := dial(t, addr)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	for rest := sent; len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(100<<10))
		_ = expect.Value(conn.Write(rest[:n]))(t)
		rest = rest[n:]
	}
	expect.OK(t, conn.CloseWrite())
	have, err := io.ReadAll(conn)
	expect.That(t, err == nil && bytes.Equal(have, sent), "want the %d bytes that were sent, have %d, the same: %t, %v", len(sent), len(have), bytes.Equal(have, sent), err)
}

// TestServeEnds: the end does not wait for what is on its way, nor for those who are silent.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	begun := make(chan bool, 2)
	addr, end := proxy(t, time.Hour, serve(t, func(conn net.Conn) {
		begun <- true
		_, _ = io.ReadAll(conn)
	}))
	silent, busy := dial(t, addr), dial(t, addr)
	_ = expect.Value(busy.Write([]byte("never arrives")))(t)
	<-begun
	<-begun
	end()
	for _, conn := range []net.Conn{silent, busy} {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("want the connection closed, have %d bytes, %v", n, err)
		}
	}
}
