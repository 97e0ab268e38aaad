package lock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// BenchmarkLocker is what the process spends on a lock, but for its connection to Redis.
func BenchmarkLocker(b *testing.B) {
	locker := expect.Value(lock.New(lock.Redis(redistest.Obliging{}), lock.Config{}))(b)
	defer locker.Close()
	for name, work := range map[string]bool{"acquire and release": false, "with a context": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				held := expect.Value(locker.Acquire(b.Context(), "order:536365", nil))(b)
				if work {
					_ = held.Context(b.Context())
				}
				expect.OK(b, held.Release(b.Context()))
			}
		})
	}
}
