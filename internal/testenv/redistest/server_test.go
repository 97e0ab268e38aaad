package redistest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	ctx := t.Context()
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if have := client.Get(ctx, "k").Val(); have != "v" {
		t.Errorf("want v, have %q", have)
	}
	if _, port, _ := net.SplitHostPort(s.Addr); port == "6379" {
		t.Errorf("want a port of its own, have %s", s.Addr)
	}
	if dir := client.ConfigGet(ctx, "dir").Val()["dir"]; dir != s.Dir {
		t.Errorf("want the server to work in %s, have %s", s.Dir, dir)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "log")); err != nil {
		t.Errorf("want a log: %v", err)
	}
}

func TestStartWithPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "sesame")
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("want a client that knows the password, have %v", err)
	}
}

func TestServersEndWithTheirTest(t *testing.T) {
	t.Parallel()
	var s *redistest.Server
	t.Run("inner", func(t *testing.T) {
		s = redistest.Start(t)
	})
	refused(t, s.Addr)
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("want the folder removed, have %v", err)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "comes back empty", want: ""},
		{name: "keeps what it wrote down", args: []string{"--appendonly", "yes", "--appendfsync", "always"}, want: "v"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tc.args...)
			addr := s.Addr
			if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.Kill()
			s.Kill() // does no harm
			refused(t, addr)
			s.Restart(t)
			if s.Addr != addr {
				t.Errorf("want the address kept, have %s after %s", s.Addr, addr)
			}
			have, err := s.Client(t).Get(t.Context(), "k").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			if have != tc.want {
				t.Errorf("want %q, have %q", tc.want, have)
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !timedOut(err) {
		t.Errorf("want no answer in time, have %v", err)
	}
	s.Resume()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("want an answer after Resume, have %v", err)
	}
	s.Pause() // a paused server must not outlive its test
}

func TestSharedIsOneServer(t *testing.T) {
	t.Parallel()
	a, b := redistest.Shared(t), redistest.Shared(t)
	if a != b {
		t.Errorf("want one server, have %s and %s", a.Addr, b.Addr)
	}
	if err := a.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// refused checks that nobody listens at addr.
func refused(t *testing.T, addr string) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err == nil {
		_ = conn.Close()
		t.Errorf("want nobody listening at %s", addr)
	}
}

// timedOut reports whether err says that no answer came in time, by the
// context's clock or the connection's: the two end at the same moment.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
