//go:build unix

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// leastStall is how long the disk keeps Redis waiting before Redis remembers it.
const leastStall = 500 * time.Millisecond

// noteStalls collects the times for which the disk kept the server waiting. A server that was started
// again has forgotten them.
func (s *standalone) noteStalls(ctx context.Context) error {
	told, err := s.rdb.Do(ctx, "LATENCY", "HISTORY", "aof-fsync-always").Slice()
	s.stalls = append(s.stalls, stalls(told, time.Now(), Now())...)
	return err
}

// stalls reads the reply of LATENCY HISTORY: pairs of the second in which a call ended, and of how many
// milliseconds it took.
func stalls(told []any, now time.Time, clock time.Duration) []Fault {
	var found []Fault
	for _, each := range told {
		pair, ok := each.([]any)
		if !ok || len(pair) != 2 {
			continue
		}
		second, _ := pair[0].(int64)
		took, _ := pair[1].(int64)
		end := clock - now.Sub(time.Unix(second, 0))
		found = append(found, Fault{Kind: SlowDisk, Start: end - time.Duration(took)*time.Millisecond, End: end + time.Second})
	}
	return found
}

// What Redis tells of its disk is put on the clock of the harness.
func TestStalls(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 500_000_000)
	have := stalls([]any{[]any{int64(990), int64(3500)}, []any{int64(1000), int64(600)}}, now, time.Minute)
	const second = time.Second
	want := []Fault{
		{Kind: SlowDisk, Start: 46 * second, End: 50*second + 500*time.Millisecond},
		{Kind: SlowDisk, Start: 58*second + 900*time.Millisecond, End: 60*second + 500*time.Millisecond},
	}
	expect.That(t, fmt.Sprint(have) == fmt.Sprint(want), "want %v, have %v", want, have)

	s := newStandalone(t)
	threshold, err := s.rdb.ConfigGet(t.Context(), "latency-monitor-threshold").Result()
	expect.That(t, err == nil && threshold["latency-monitor-threshold"] == "500", "want a server that remembers, have %v, %v", threshold, err)
	if err := s.noteStalls(t.Context()); err != nil {
		t.Error(err)
	}
}
