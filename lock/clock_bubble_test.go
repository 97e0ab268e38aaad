package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

// A recorder keeps the arguments of every script, and grants every lock.
type recorder struct {
	redis.Scripter // whatever is not below panics

	args []string
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (r *recorder) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	r.args = append(r.args, uuids.ReplaceAllString(fmt.Sprint(keys, args), "uuid"))
	cmd := redis.NewCmd(ctx)
	if args[1] == "acquire" {
		cmd.SetVal([]any{[]any{int64(1), "1", "-1", "", keys[0]}})
	} else { // renew and release
		cmd.SetVal([]any{int64(1)})
	}
	return cmd
}

// TestNoClientClockInScripts: what is sent does not depend on the time that a
// client believes it is.
func TestNoClientClockInScripts(t *testing.T) {
	t.Parallel()
	var first []string
	for _, skew := range []time.Duration{0, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(skew)
			r := &recorder{}
			locker := lockerOn(t, lock.Redis(r))
			for _, opts := range []*lock.Options{nil, {Wait: lock.Forever, Retry: lock.Fixed(time.Second)}, {Wait: lock.Forever}} {
				held, err := locker.Acquire(t.Context(), "order:1", opts)
				must(t, err)
				time.Sleep(6 * time.Second)
				must(t, held.Release(t.Context()))
			}
			if len(r.args) != 9 {
				t.Fatalf("want three scripts for each of three leases, have %d", len(r.args))
			}
			if first == nil {
				first = r.args
			}
			if diff := cmp.Diff(first, r.args); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// stepped is a context after the wall clock has stepped past its deadline. The deadline has no
// monotonic reading, so its timer fires an hour later.
type stepped struct{ context.Context } //nolint:containedctx // it is one

func (stepped) Deadline() (time.Time, bool) { return time.Now().Round(0).Add(-time.Minute), true }

// TestDeadlineThatTheClockHasSteppedPast: it has ended, for all ways to wait, and nothing waits for
// the context to notice.
func TestDeadlineThatTheClockHasSteppedPast(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]lock.Options{
		"once": {}, "queued": {Wait: lock.Forever}, "by retry": {Wait: lock.Forever, Retry: lock.Fixed(time.Second)},
	}, func(t *testing.T, wait lock.Options) {
		t.Helper()
		l := newAbandoned(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err := l.locker.Acquire(stepped{ctx}, "order:1", &wait)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
			t.Errorf("want the deadline passed at once, have %v after %v", err, took)
		}
		l.release(t)
	})
}
