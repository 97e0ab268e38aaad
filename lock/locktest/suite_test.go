package locktest_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestMemory is the suite on fake time.
func TestMemory(t *testing.T) {
	t.Parallel()
	memory := locktest.NewMemory()
	locktest.Run(t, locktest.Backend{
		Open:     func(*testing.T) lock.Store { return memory },
		Put:      func(_ *testing.T, key, value string, ttl time.Duration) { memory.Put(key, value, ttl) },
		Value:    func(_ *testing.T, key string) string { return memory.Value(key) },
		FakeTime: true,
	})
}
