package delay

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/bench/internal/program"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestMain also runs the proxies that tests Start. Tests that leave goroutines fail.
func TestMain(m *testing.M) {
	if Asked() {
		os.Exit(program.Run(command, Main)) //nolint:forbidigo // it is the main of another program here
	}
	goleak.VerifyTestMain(m)
}

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

// echo answers with what it gets.
func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

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
	if !ok {
		t.Fatalf("want a TCP connection, have %T", conn)
	}
	return tcp
}

// exchange sends one byte to an echo and waits for it.
func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte{'x'})
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if err != nil {
		t.Error(err)
	}
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
	if err != nil || !bytes.Equal(have, sent) {
		t.Errorf("want the %d bytes that were sent, have %d, the same: %t, %v", len(sent), len(have), bytes.Equal(have, sent), err)
	}
}

// TestDelay: no byte is early, in either direction, and the best of a few is not late.
func TestDelay(t *testing.T) {
	t.Parallel()
	const oneWay, tries = 20 * time.Millisecond, 10
	arrived := make(chan time.Time, 1)
	addr, _ := proxy(t, oneWay, serve(t, func(conn net.Conn) {
		buf := make([]byte, 1)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			arrived <- time.Now()
			_, _ = conn.Write(buf)
		}
	}))
	conn := dial(t, addr)
	best := patience
	for range tries {
		sent := time.Now()
		exchange(t, conn)
		got := time.Now()
		there := <-arrived
		if there.Sub(sent) < oneWay || got.Sub(there) < oneWay {
			t.Errorf("want at least %v each way, have %v and %v", oneWay, there.Sub(sent), got.Sub(there))
		}
		best = min(best, got.Sub(sent))
	}
	if best > 3*oneWay {
		t.Errorf("want one round trip of %d in less than %v, have %v", tries, 3*oneWay, best)
	}
}

// TestConnectionsDoNotWaitForOneAnother: many exchanges at once take one delay.
func TestConnectionsDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	const oneWay, many = 100 * time.Millisecond, 20
	addr, _ := proxy(t, oneWay, serve(t, echo))
	var conns []net.Conn
	for range many {
		conns = append(conns, dial(t, addr))
	}
	start := time.Now()
	var all sync.WaitGroup
	for _, conn := range conns {
		all.Go(func() { exchange(t, conn) })
	}
	all.Wait()
	if took := time.Since(start); took > 30*oneWay { // one by one they take 40
		t.Errorf("want %d at once in about %v, have %v", many, 2*oneWay, took)
	}
}

// TestPiecesDoNotWaitForOneAnother: pieces of one connection share their delay, too. Each
// write to a net.Pipe is read on its own.
func TestPiecesDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	const oneWay, many = 100 * time.Millisecond, 20
	sender, from := net.Pipe()
	to, receiver := net.Pipe()
	var passing sync.WaitGroup
	passing.Go(func() {
		if err := (&Line{OneWay: oneWay}).pass(t.Context(), from, to); err != nil {
			t.Error(err)
		}
	})
	start := time.Now()
	for i := range many {
		_ = expect.Value(sender.Write([]byte{byte(i)}))(t)
	}
	_ = sender.Close()
	have, err := io.ReadAll(receiver)
	passing.Wait()
	if took := time.Since(start); took > 30*oneWay || len(have) != many || err != nil {
		t.Errorf("want %d pieces in about %v, have %d in %v, %v", many, oneWay, len(have), took, err)
	}
}

// TestNobodyReceives: a sender is not left waiting for a receiver that has gone.
func TestNobodyReceives(t *testing.T) {
	t.Parallel()
	sender, from := net.Pipe()
	to, receiver := net.Pipe()
	_ = receiver.Close()
	var passing sync.WaitGroup
	passing.Go(func() {
		if err := (&Line{}).pass(t.Context(), from, to); err == nil {
			t.Error("want an error where nobody receives")
		}
	})
	_ = sender.SetDeadline(time.Now().Add(patience))
	var err error
	for err == nil {
		_, err = sender.Write([]byte{'x'})
	}
	if os.IsTimeout(err) {
		t.Error("want the sender to be told, and not to wait")
	}
	_ = sender.Close()
	passing.Wait()
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

// TestServerHangsUp: its end is passed on while the client still could write.
func TestServerHangsUp(t *testing.T) {
	t.Parallel()
	addr, _ := proxy(t, time.Millisecond, serve(t, func(conn net.Conn) { _, _ = conn.Write([]byte("bye")) }))
	if have, err := io.ReadAll(dial(t, addr)); string(have) != "bye" || err != nil {
		t.Errorf("want bye and the end, have %q, %v", have, err)
	}
}

// TestNoServer: nobody listens behind the proxy.
func TestNoServer(t *testing.T) {
	t.Parallel()
	gone := listen(t)
	_ = gone.Close()
	addr, _ := proxy(t, time.Millisecond, gone.Addr().String())
	if have, err := io.ReadAll(dial(t, addr)); len(have) > 0 || os.IsTimeout(err) {
		t.Errorf("want the connection closed, have %q, %v", have, err)
	}
}

// TestClock: waits of less than a millisecond end in time on Linux, and no wait is short.
func TestClock(t *testing.T) {
	t.Parallel()
	c := expect.Value(newClock(t.Context()))(t)
	defer c.close()
	const wait, tries = 250 * time.Microsecond, 100
	best := patience
	for range tries {
		due := time.Now().Add(wait)
		expect.OK(t, c.until(due))
		late := time.Since(due)
		if late < 0 {
			t.Errorf("want no wait to be short, have one by %v", -late)
		}
		best = min(best, late)
	}
	if best > 300*time.Microsecond && runtime.GOOS == "linux" {
		t.Errorf("want a few of %d waits of %v in time, have all late by %v", tries, wait, best)
	}
}

// TestProcess: a proxy in a process of its own does the same.
func TestProcess(t *testing.T) {
	t.Parallel()
	const oneWay = 10 * time.Millisecond
	p := expect.Value(Start(t.Context(), Line{OneWay: oneWay, Network: "tcp", Server: serve(t, echo)}))(t)
	defer p.Stop()
	conn := dial(t, p.Addr)
	start := time.Now()
	exchange(t, conn)
	if took := time.Since(start); took < 2*oneWay {
		t.Errorf("want a round trip of %v or more, have %v", 2*oneWay, took)
	}
	p.Stop()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("want the connection closed, have %d bytes, %v", n, err)
	}
}
