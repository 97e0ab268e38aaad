//go:build unix

package chaos

import (
	"context"
	"time"
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
