package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sidingq/siding/lock"
)

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
