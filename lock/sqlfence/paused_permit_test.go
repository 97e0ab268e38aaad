//go:build unix

package sqlfence_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestPausedHolderOfAPermit kills or stops one of two processes that share a lock with a limit of 2.
// Its permit is free about one TTL after its last renewal. One other gets it. The process that goes on
// learns of its loss, and its late release gives nobody a third permit.
func TestPausedHolderOfAPermit(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := redistest.Shared(t).Addr
			j := job{Redis: addr, Resource: t.Name(), Store: "redis", Address: addr, Fenced: true, Limit: 2}
			s := openStore(t, j)
			other := acquireOnceFree(t, j)
			paused := startPaused(t, j)
			former := paused.number(t, "holds with fence ")
			wantNoPermit(t, j)
			wantRenewals(t, j)

			paused.signal(t, signal)
			since := time.Now()
			rival := acquireOnceFree(t, j)
			took := time.Since(since)
			t.Logf("the permit was free after %v", took)
			if took < pausedTTL/4 || took > 4*pausedTTL {
				t.Errorf("want the permit about one TTL after the last renewal, got it after %v", took)
			}
			if rival.Fence() <= former || former <= other.Fence() {
				t.Errorf("want rising fences, have %d, %d and %d", other.Fence(), former, rival.Fence())
			}
			wantNoPermit(t, j)

			if signal == syscall.SIGSTOP {
				must(t, s.write(rival.Context(t.Context()), "rival", true))
				paused.say(t, "write")
				paused.signal(t, syscall.SIGCONT)
				if have := paused.answer(t, "wrote: "); have == "done" {
					t.Error("want the late write refused, it is done")
				}
				if have := paused.answer(t, "lost: "); have != "true" {
					t.Errorf("want the context of the paused process ended with %v, have %s", lock.ErrLost, have)
				}
				for paused.out.Scan() { // until the process has released and ended
					t.Log(paused.out.Text())
				}
				wantNoPermit(t, j)
			}
			for _, held := range []*lock.Lease{other, rival} {
				if err := held.Release(t.Context()); err != nil {
					t.Errorf("want a permit held to the end, have %v", err)
				}
			}
		})
	}
}

// wantRenewals waits until each permit of the job's lock has been renewed. It fails if a permit, or the
// mark of the lock, is to live for longer than the TTL: then a dead holder keeps others out for too long.
func wantRenewals(t *testing.T, j job) {
	t.Helper()
	rdb := newRedis(t, j.Redis)
	last, renewed := make(map[string]time.Duration), make(map[string]bool)
	poll.Eventually(t, "each permit renewed", func() bool {
		permits := rdb.HKeys(t.Context(), "{lock:"+j.Resource+"}:permits").Val()
		keys := []string{"lock:" + j.Resource}
		for _, number := range permits {
			keys = append(keys, "{lock:"+j.Resource+"}:permit:"+number)
		}
		for i, key := range keys {
			left := rdb.PTTL(t.Context(), key).Val()
			if left > pausedTTL {
				t.Fatalf("want %s to live for %v at most, have %v", key, pausedTTL, left)
			}
			if before, ok := last[key]; ok && i > 0 && left > before {
				renewed[key] = true
			}
			last[key] = left
		}
		return len(permits) == j.Limit && len(renewed) == len(permits)
	})
}

// wantNoPermit fails if a permit of the job's lock is free.
func wantNoPermit(t *testing.T, j job) {
	t.Helper()
	locker, err := lock.New(lock.Redis(newRedis(t, j.Redis)), lock.Config{TTL: pausedTTL})
	must(t, err)
	defer locker.Close()
	held, err := locker.Acquire(t.Context(), j.Resource, &lock.Options{Limit: j.Limit})
	if !errors.Is(err, lock.ErrBusy) {
		t.Errorf("want no third permit, have %v, %v", held, err)
	}
}
