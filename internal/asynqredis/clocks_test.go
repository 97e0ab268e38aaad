package asynqredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

// ClockOf finds the clock of a server between two bounds that are little more than a second apart.
func TestClockOf(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	for i := range 40 {
		off := time.Duration(i-20) * 170 * time.Millisecond
		s := Server{Host: t.Name(), PID: i, ID: "x"}
		key := fmt.Sprintf("asynq:servers:{%s:%d:x}", s.Host, s.PID)
		const ttl = 10 * time.Second
		if err := rdb.ZAdd(t.Context(), "asynq:servers", redis.Z{Score: float64(time.Now().Add(off + ttl).Unix()), Member: key}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.Set(t.Context(), key, "entry", ttl).Err(); err != nil {
			t.Fatal(err)
		}
		least, most, ok, err := ClockOf(t.Context(), rdb, s)
		const tolerated = 100 * time.Millisecond // for the time between these calls
		if err != nil || !ok || least > off+tolerated || most < off-tolerated || most-least < time.Second {
			t.Errorf("want a clock %v ahead, have %v to %v, %t, %v", off, least, most, ok, err)
		}
	}
	if _, _, ok, err := ClockOf(t.Context(), rdb, Server{Host: "gone"}); ok || err != nil {
		t.Errorf("want no clock of a server that is gone, have %t, %v", ok, err)
	}
}
