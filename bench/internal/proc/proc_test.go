package proc_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/bench/internal/proc"
	"github.com/sidingq/siding/internal/testbin"
	"github.com/sidingq/siding/internal/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errNever = errors.New("never")

// TestAwaitGone: a server that ends at once is not waited for, and what it wrote is told.
func TestAwaitGone(t *testing.T) {
	t.Parallel()
	testbin.Find(t, "redis-server", "redis-server")
	s, err := proc.Start(t.Context(), "redis-server", func(string) []string { return []string{"--no-such-option", "x"} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if err := s.Await(t.Context(), func() error { return errNever }); err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("want what the server said, have %v", err)
	}
}

// TestContextEnds: a server ends with the context that it was started with.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	testbin.Find(t, "redis-server", "redis-server")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := proc.Start(ctx, "redis-server", func(dir string) []string { return []string{"--port", "0", "--dir", dir, "--save", ""} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if err := s.Gone(); err != nil {
		t.Fatal(err)
	}
	cancel()
	err = testproc.Poll(t.Context(), func() error {
		if s.Gone() == nil {
			return errors.New("still there")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
