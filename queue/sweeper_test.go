package queue_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A sweeps counts the rounds of a sweeper with one queue, and can make one fail.
type sweeps struct {
	rounds atomic.Int32
	fail   atomic.Bool
}

// tap is for the guard's calls.
func (s *sweeps) tap(_ context.Context, cmd redis.Cmder, send func() error) error {
	if !hasKeys(cmd, ":contended", ":paused") {
		return send()
	}
	if s.fail.Swap(false) {
		return io.ErrUnexpectedEOF
	}
	err := send()
	if err == nil {
		s.rounds.Add(1)
	}
	return err
}

// await waits until a round that has begun after the call has listed its locks. All scans of
// earlier rounds are over then.
func (s *sweeps) await(t *testing.T) {
	t.Helper()
	first := s.rounds.Load()
	poll.Eventually(t, "a round of the sweeper", func() bool { return s.rounds.Load() >= first+2 })
}

// putOff has the sweeper scan the bundle's lock in an hour, as if there were very many locks.
func (s *sweeps) putOff(t *testing.T, b *bundle) {
	t.Helper()
	at := float64(time.Now().Add(time.Hour).UnixMicro())
	poll.Eventually(t, "the next look in an hour", func() bool {
		if err := b.rdb.ZAdd(t.Context(), b.contendedKey(), redis.Z{Score: at, Member: b.lockKey()}).Err(); err != nil {
			t.Fatal(err)
		}
		s.await(t) // a scan may be under way
		return b.looksAt(t) == at
	})
}

// After a disturbance the sweeper scans all locks, also those whose time has not come.
func TestSweeperLooksAtAllAfterADisturbance(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*testing.T, *bundle, *sweeps) error{
		"its connection is made anew": func(t *testing.T, b *bundle, _ *sweeps) error {
			t.Helper()
			return b.rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Err()
		},
		"a call fails": func(_ *testing.T, _ *bundle, s *sweeps) error {
			s.fail.Store(true)
			return nil
		},
		"a queue is resumed": func(t *testing.T, b *bundle, s *sweeps) error {
			t.Helper()
			if err := b.inspector.PauseQueue(b.queue); err != nil {
				return err
			}
			s.await(t)
			return b.inspector.UnpauseQueue(b.queue)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			st, s := newStage(t), &sweeps{}
			(&plain{onLocks: s.tap}).serve(t, b, st)
			b.awaitListener(t)
			b.take(t, lock.Config{})
			ids := b.park(t, 1)
			s.putOff(t, b)
			if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil { // its holder died
				t.Fatal(err)
			}
			if err := disturb(t, b, s); err != nil {
				t.Fatal(err)
			}
			b.awaitGone(t, ids...)
		})
	}
}

// The answer to a scan is lost in which the sweeper has reserved the lock for a task. A later scan
// names the reservation again, and the sweeper wakes the task.
func TestSweepWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b, st := setupStepwise(t), newStage(t)
	var lost atomic.Bool
	(&plain{
		guardConfig: queue.GuardConfig{Lock: longTimeout},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if answer, ok := cmd.(*redis.Cmd); ok && strings.Contains(fmt.Sprint(answer.Val()), "siding-reserved:recovery-") && !lost.Swap(true) {
				return io.ErrUnexpectedEOF
			}
			return err
		},
	}).serve(t, b, st)
	b.take(t, lock.Config{})
	ids := b.park(t, 1)
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil { // its holder died
		t.Fatal(err)
	}
	start := time.Now()
	b.awaitGone(t, ids...)
	if took := time.Since(start); took > prompt {
		t.Errorf("want it woken before its reservation expires, have it done after %v", took)
	}
	if !lost.Load() {
		t.Error("want an answer lost")
	}
}
