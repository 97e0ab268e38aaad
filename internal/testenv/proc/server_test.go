package proc_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// TestServerEndsAtOnce: a server that ends is not waited for, and what it wrote is told.
func TestServerEndsAtOnce(t *testing.T) {
	t.Parallel()
	s, err := proc.New(proc.Find(t, "redis-server", "redis-server"))
	if err != nil {
		t.Fatal(err)
	}
	s.Args = []string{"--no-such-option", "x"}
	s.Ready = func(context.Context) error { return errors.New("never") }
	err = s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it has ended: exit status 1; its log:") || !strings.Contains(err.Error(), "'no-such-option") {
		t.Errorf("want how it ended and what it said, have %v", err)
	}
	s.Stop()
	s.Stop() // does no harm
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("want the folder removed, have %v", err)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	s, err := proc.New("/no/such/program")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if err := s.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("want an error that says so, have %v", err)
	}
}
