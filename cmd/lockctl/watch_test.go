package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A buffer may be read while a program writes it.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// last returns the last whole frame on a terminal.
func (b *buffer) last() string {
	frames := strings.Split(b.String(), "\x1b[H")
	if len(frames) < 2 {
		return ""
	}
	return frames[len(frames)-2]
}

// A watch says when Redis is away, keeps what it knew, and goes on.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	b := busy(t)
	var out, errs buffer
	a := newApp(strings.NewReader(""), &out, &errs, []string{"SIDING_REDIS_ADDRS=" + b.at.Addr})
	a.size = func(io.Writer) (int, int) { return 100, 10 }
	ctx, end := context.WithCancel(t.Context())
	status := make(chan int)
	go func() { status <- a.run(ctx, []string{"list", "--watch=100ms"}) }()
	defer func() {
		end()
		if have := <-status; have != cli.StatusOK || errs.String() != "" {
			t.Errorf("want status 0 at the end of a watch, have %d and %q", have, errs.String())
		}
	}()
	shows := func(texts ...string) {
		t.Helper()
		expect.Eventually(t, strings.Join(texts, ", "), func() bool {
			frame := out.last()
			for _, text := range texts {
				text, no := strings.CutPrefix(text, "!")
				if strings.Contains(frame, text) == no {
					return false
				}
			}
			return true
		})
	}
	shows("1 lock, 2 waiters", "order:1   held", "!away")
	b.at.Kill()
	shows("Redis is away since ", "connection refused", "order:1   held")
	b.at.Restart(t)
	shows("!Redis is away")
}

// Elsewhere than on a terminal lists follow each other, and errors go to stderr, once.
func TestWatchElsewhere(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"list", "--watch=100ms"}, {"list", "--watch=100ms", "--json"}} {
		b := newTestbed(t)
		var out, errs buffer
		a := newApp(strings.NewReader(""), &out, &errs, []string{"SIDING_REDIS_ADDRS=" + b.at.Addr})
		ctx, end := context.WithCancel(t.Context())
		status := make(chan int)
		go func() { status <- a.run(ctx, args) }()
		lists := func() int { return strings.Count(out.String(), "RESOURCE") + strings.Count(out.String(), "[]\n") }
		expect.Eventually(t, "two lists", func() bool { return lists() >= 2 })
		b.at.Kill()
		expect.Eventually(t, "an error", func() bool { return strings.Contains(errs.String(), "connection refused") })
		before := lists()
		b.at.Restart(t)
		expect.Eventually(t, "more lists", func() bool { return lists() > before })
		end()
		if have := <-status; have != cli.StatusOK {
			t.Errorf("want status 0, have %d", have)
		}
		if text := errs.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "\nlockctl: redis answers again, after ") {
			t.Errorf("want two lines on stderr, have %q", text)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("want no control characters, have %q", out.String())
		}
	}
}

// A frame is no larger than the terminal.
func TestFrame(t *testing.T) {
	t.Parallel()
	f := &fake{list: inspect.List{Locks: slices.Concat(locks, locks, locks)}}
	a, out, _ := fakeApp(f, 40) // and 10 rows
	ctx, end := context.WithCancel(t.Context())
	a.now = func() time.Time { end(); return now } // after the first frame
	if have := a.run(ctx, []string{"list", "--watch"}); have != cli.StatusOK {
		t.Errorf("want status 0, have %d", have)
	}
	golden(t, "watch.txt", out.String())
}
