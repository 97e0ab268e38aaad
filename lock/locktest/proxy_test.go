package locktest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
)

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
			if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("want the connection closed, have %v", err)
			}
		})
	}
}
