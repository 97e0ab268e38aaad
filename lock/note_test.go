package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// TestNoteOfAnothersLock: only the holder of a lock writes the note on it. A note expires, and a call that
// is sent again changes nothing.
func TestNoteOfAnothersLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		noter, ok := lock.Redis(s.rdb).(store.Noter)
		if !ok {
			s.Fatal("want a store that keeps notes")
		}
		s.take("")
		key := "{" + s.key + "}:waits"
		note := func(token string, waits ...store.Wait) string {
			for range 2 {
				if err := noter.Note(s.Context(), s.key, token, 7, waits, 15*time.Second); err != nil {
					s.Fatal(err)
				}
			}
			return s.rdb.Get(s.Context(), key).Val()
		}
		wait := store.Wait{Key: "lock:b", Waiter: "w1", Until: time.UnixMilli(1700000000123)}
		other := store.Wait{Key: "lock:c", Elsewhere: true}
		if have := note("siding:1:another", wait); have != "" {
			s.Errorf("want no note of another token, have %q", have)
		}
		const want = "7\nw1\nlock:b\n1700000000123\n0\n\nlock:c\n0\n1"
		if have := note(s.value(), wait, other); have != want {
			s.Errorf("want the note %q, have %q", want, have)
		}
		if left := s.rdb.PTTL(s.Context(), key).Val(); left <= 0 || left > 15*time.Second {
			s.Errorf("want a note that expires within 15 s, have %v", left)
		}
		if have := note("siding:1:another"); have != want {
			s.Errorf("want the note left to its holder, have %q", have)
		}
		if have := note(s.value()); have != "" {
			s.Errorf("want the note deleted, have %q", have)
		}
	})
}

// What a holder notes is what others read, byte by byte.
func TestHolderIsANote(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for i, note := range []string{"ann", `{"pod": "a:b", "job": [1, 2]}`, "two\nlines", "größe 赤", "\xff\x00", strings.Repeat("x", 200)} {
			one := s.on(fmt.Sprintf("%s-%d", s.res, i))
			held, err := one.Acquire(s.Context(), one.res, &lock.Options{Holder: note})
			if err != nil {
				s.Fatal(err)
			}
			for who, locker := range map[string]*lock.Locker{"this process": s.Locker, "another": s.stranger().Locker} {
				_, err := locker.Acquire(s.Context(), one.res, nil)
				if busy, ok := errors.AsType[*lock.BusyError](err); !ok || busy.Holder != note {
					s.Errorf("%s: want %q, have %v", who, note, err)
				}
			}
			s.release(held)
		}
		_, err := s.Acquire(s.Context(), s.res, &lock.Options{Holder: strings.Repeat("x", 201)})
		if want := "lock: holder: want at most 200 bytes, have 201"; err == nil || err.Error() != want {
			s.Errorf("want %q, have %v", want, err)
		}
	})
}
