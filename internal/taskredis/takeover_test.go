package taskredis

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Tasks that waited in the way of an earlier release are taken over in their order, and others are left alone.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		ctx := context.Background()
		rdb := b.rdb
		const n = 1200
		for i := range n {
			id := fmt.Sprint(i)
			b.must(rdb.HSet(ctx, TaskKey("q", id), "state", "retry", "msg", "m", "siding_ticket", 1_000_000+n-i, "siding_lock", "lock:a").Err())
			b.must(rdb.ZAdd(ctx, RetryKey("q"), redis.Z{Score: 9e9, Member: id}).Err())
		}
		b.must(rdb.HSet(ctx, TaskKey("q", "failed"), "state", "retry", "msg", "m").Err())
		b.must(rdb.HSet(ctx, TaskKey("q", "new"), "state", "retry", "msg", "m", "siding_ticket", 1, "siding_until", 9_000_000_000).Err())
		b.must(rdb.ZAdd(ctx, RetryKey("q"), redis.Z{Score: 9e9, Member: "failed"}, redis.Z{Score: 9e9, Member: "new"}).Err())
		if moved, err := TakeOver(ctx, rdb, "q"); moved != 0 || err != nil {
			t.Fatalf("without a sign of an earlier release: want nothing done, have %d, %v", moved, err)
		}
		b.must(rdb.ZAdd(ctx, oldKey("q"), redis.Z{Score: 1, Member: "lock:a"}).Err())
		if moved, err := TakeOver(ctx, rdb, "q"); moved != n || err != nil {
			t.Fatalf("want %d taken over, have %d, %v", n, moved, err)
		}
		pending := rdb.LRange(ctx, PendingKey("q"), 0, -1).Val()
		slices.Reverse(pending) // the right end is the head
		for i, id := range pending {
			if id != fmt.Sprint(n-1-i) {
				t.Fatalf("number %d in pending: want %d, have %s", i, n-1-i, id)
			}
		}
		if left := rdb.ZCard(ctx, RetryKey("q")).Val(); len(pending) != n || left != 2 {
			t.Errorf("want %d pending and 2 left alone, have %d and %d", n, len(pending), left)
		}
		if moved, err := TakeOver(ctx, rdb, "q"); moved != 0 || err != nil {
			t.Errorf("the second time: want nothing done, have %d, %v", moved, err)
		}
	})
}
