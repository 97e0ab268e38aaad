package locktest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
)

// proxied returns two clients of the shared server. One goes through a proxy and tries each call
// once, and the other goes directly.
func proxied(t *testing.T) (p *locktest.Proxy, through, direct *redis.Client) {
	t.Helper()
	s := redistest.Shared(t)
	p = locktest.NewProxy(t, s.Addr)
	through = redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = through.Close() })
	set(t, through, "open")
	return p, through, s.Client(t)
}

// set writes value to the test's own key, which must succeed.
func set(t *testing.T, client *redis.Client, value string) {
	t.Helper()
	if err := client.Set(t.Context(), t.Name(), value, 0).Err(); err != nil {
		t.Fatalf("set %s: %v", value, err)
	}
}

// setSilent writes value to the test's own key, which must get no answer.
func setSilent(t *testing.T, client *redis.Client, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Set(ctx, t.Name(), value, 0).Err(); !timedOut(err) {
		t.Fatalf("set %s: want no answer in time, have %v", value, err)
	}
}

// want checks the test's own key.
func want(t *testing.T, client *redis.Client, value string) {
	t.Helper()
	if have := client.Get(t.Context(), t.Name()).Val(); have != value {
		t.Errorf("want %q stored, have %q", value, have)
	}
}

func TestProxyBlackHole(t *testing.T) {
	t.Parallel()
	p, through, direct := proxied(t)
	p.BlackHole(true)
	setSilent(t, through, "an old connection")
	setSilent(t, through, "a new connection")
	want(t, direct, "open")
	p.BlackHole(false)
	set(t, through, "open again")
	want(t, direct, "open again")
}

// A stream that has lost bytes must not go on.
func TestProxyCutsWhatHasLostBytes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault func(*locktest.Proxy, bool)
	}{
		{name: "black hole", fault: (*locktest.Proxy).BlackHole},
		{name: "swallowed replies", fault: (*locktest.Proxy).SwallowReplies},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := locktest.NewProxy(t, redistest.Shared(t).Addr)
			var d net.Dialer
			conn := expect.Value(d.DialContext(t.Context(), "tcp", p.Addr))(t)
			defer conn.Close()
			expect.OK(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			reply := make([]byte, len("+PONG\r\n"))
			_, _ = fmt.Fprint(conn, "PING\r\n")
			expect.OK(t, expect.Err(io.ReadFull(conn, reply)))
			tc.fault(p, true)
			_, _ = fmt.Fprint(conn, "PING\r\n")
			tc.fault(p, false)
			// Unless the proxy was faster, the answer is lost; the end is not.
			if _, err := io.ReadAll(conn); timedOut(err) {
				t.Errorf("want the connection closed, have %v", err)
			}
		})
	}
}
