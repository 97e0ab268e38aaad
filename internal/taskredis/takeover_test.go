package taskredis

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// Tasks that waited in the way of an earlier release are taken over in their order, and others are left alone.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		rdb := t.rdb
		const n = 1200
		for i := range n {
			id := fmt.Sprint(i)
			t.must(rdb.HSet(t.Context(), TaskKey("q", id), "state", "retry", "msg", "m", "siding_ticket", 1_000_000+n-i, "siding_lock", "lock:a").Err())
			t.must(rdb.ZAdd(t.Context(), RetryKey("q"), redis.Z{Score: 9e9, Member: id}).Err())
		}
		t.must(rdb.HSet(t.Context(), TaskKey("q", "failed"), "state", "retry", "msg", "m").Err())
		t.must(rdb.HSet(t.Context(), TaskKey("q", "new"), "state", "retry", "msg", "m", "siding_ticket", 1, "siding_until", 9_000_000_000).Err())
		t.must(rdb.ZAdd(t.Context(), RetryKey("q"), redis.Z{Score: 9e9, Member: "failed"}, redis.Z{Score: 9e9, Member: "new"}).Err())
		if moved, err := TakeOver(t.Context(), rdb, "q"); moved != 0 || err != nil {
			t.Fatalf("without a sign of an earlier release: want nothing done, have %d, %v", moved, err)
		}
		t.must(rdb.ZAdd(t.Context(), oldKey("q"), redis.Z{Score: 1, Member: "lock:a"}).Err())
		if moved, err := TakeOver(t.Context(), rdb, "q"); moved != n || err != nil {
			t.Fatalf("want %d taken over, have %d, %v", n, moved, err)
		}
		pending := rdb.LRange(t.Context(), PendingKey("q"), 0, -1).Val()
		slices.Reverse(pending) // the right end is the head
		for i, id := range pending {
			expect.Need(t, id == fmt.Sprint(n-1-i), "number %d in pending: want %d, have %s", i, n-1-i, id)
		}
		left := rdb.ZCard(t.Context(), RetryKey("q")).Val()
		expect.That(t, len(pending) == n && left == 2, "want %d pending and 2 left alone, have %d and %d", n, len(pending), left)
		if moved, err := TakeOver(t.Context(), rdb, "q"); moved != 0 || err != nil {
			t.Errorf("the second time: want nothing done, have %d, %v", moved, err)
		}
	})
}
