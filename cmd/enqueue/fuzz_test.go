package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// The value at a checkpoint's key is a line behind which to go on, which a save only moves forward.
// Any other value gives an error that names the key and the way out.
func FuzzCheckpoint(f *testing.F) {
	for _, seed := range []string{"", "0", "17", "-1", "1e3", "0x10", " 5", "nan", "99999999999999999999", "x\n"} {
		f.Add(seed, uint16(20))
	}
	rdb := redistest.Start(f).Client(f)
	f.Fuzz(func(t *testing.T, text string, line uint16) {
		c := newCheckpoint(rdb, "stream", "default", "fuzz")
		expect.OK(t, rdb.Set(t.Context(), c.key, text, 0).Err())
		before, err := c.load(t.Context())
		if err != nil {
			if !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), "--restart") {
				t.Errorf("%q: want an error that names the key and the way out, have %v", text, err)
			}
			return
		}
		if before < 0 {
			t.Errorf("%q: want a line, have %d", text, before)
		}
		expect.OK(t, c.save(t.Context(), int(line)))
		after, err := c.load(t.Context())
		if want := max(before, int(line)); err != nil || after != want {
			t.Errorf("%q, then %d: want %d, have %d, %v", text, line, want, after, err)
		}
		if left := rdb.TTL(t.Context(), c.key); errors.Is(left.Err(), redis.Nil) || left.Val() <= 0 {
			t.Errorf("%q: want it kept for some time, have %v", text, left.Val())
		}
	})
}
