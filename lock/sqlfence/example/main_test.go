//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// workerEnv has this test's program be the example, which runs itself as its workers.
const workerEnv = "FENCE_EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
		return
	}
	_ = os.Setenv(workerEnv, "1") // for all tests of this program
	goleak.VerifyTestMain(m)
}

func TestLateWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		want []string // patterns of all lines
	}{
		{"fenced", nil, []string{
			`Worker 1 sells 3 of 10 pieces, with fence \d+`,
			`Worker 1 is stopped by SIGSTOP, just before it writes`,
			// The task of worker 1 comes first, but for some ms in which the Redis in memory has ended its lock and not its lease.
			`Worker 2 sells [34] of 10 pieces, with fence \d+`,
			`Worker 2 has written [67] pieces`,
			`Worker 2 sells [34] of [67] pieces, with fence \d+`,
			`Worker 2 has written 3 pieces`,
			`Worker 1 goes on by SIGCONT`,
			`Worker 1 is refused: lock: stock "85123A" has seen fence \d+, refused the older \d+`,
			`3 pieces are left, which is right`,
		}},
		{"unfenced", []string{"-unfenced"}, []string{
			`Worker 1 sells 3 of 10 pieces, with fence \d+`,
			`Worker 1 is stopped by SIGSTOP, just before it writes`,
			// The task of worker 1 comes first, but for some ms in which the Redis in memory has ended its lock and not its lease.
			`Worker 2 sells [34] of 10 pieces, with fence \d+`,
			`Worker 2 has written [67] pieces`,
			`Worker 2 sells [34] of [67] pieces, with fence \d+`,
			`Worker 2 has written 3 pieces`,
			`Worker 1 goes on by SIGCONT`,
			`Worker 1 has written 7 pieces`,
			`7 pieces are left, which is wrong: sales of 3 and 4 leave 3 of 10`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := run(t.Context(), test.args, nil, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			want := "^" + strings.Join(test.want, "\n") + "\n$"
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("want\n%s\nhave\n%s", strings.Join(test.want, "\n"), out.String())
			}
		})
	}
}

// TestInterrupt ends the example while a worker is stopped.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := cancelAt{text: "SIGSTOP", cancel: cancel}
	if err := run(ctx, nil, nil, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("want %v, have %v", context.Canceled, err)
	}
}

// cancelAt calls cancel when text is written.
type cancelAt struct {
	text   string
	cancel context.CancelFunc
}

func (c *cancelAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return len(p), nil
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), []string{"-fenced"}, nil, &out); err == nil || !strings.Contains(err.Error(), "-fenced") {
		t.Errorf("want an error that names the flag, have %v", err)
	}
	if err := run(t.Context(), []string{"-help"}, nil, &out); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want %v, have %v", flag.ErrHelp, err)
	}
}
