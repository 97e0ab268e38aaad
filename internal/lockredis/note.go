package lockredis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/store"
)

var noteScript = Script(luaFiles, "note")

// Note implements [store.Noter]. The first line of a note is the fencing token of the holder. Each wait follows in four
// lines: the waiter, the key, when it ends in ms or 0, and 1 if the lock may be elsewhere. A key has no line breaks.
func (s *redisStore) Note(ctx context.Context, key, token string, fence int64, waits []store.Wait, ttl time.Duration) error {
	if store.LockOf(key) != key {
		return nil // a permit has no note
	}
	var note strings.Builder
	for _, w := range waits {
		if note.Len() == 0 {
			note.WriteString(strconv.FormatInt(fence, 10))
		}
		var until int64
		if !w.Until.IsZero() {
			until = w.Until.UnixMilli()
		}
		for _, line := range []string{w.Waiter, w.Key, strconv.FormatInt(until, 10), flag(w.Elsewhere)} {
			note.WriteString("\n" + line)
		}
	}
	return noteScript.Run(ctx, s.rdb, []string{key, store.Beside(key, "waits")}, token, note.String(), ms(ttl)).Err()
}

// waitsOf reads a note of Note. It leaves out what it cannot read.
func waitsOf(note string) (waits []store.Wait) {
	const each = 4
	lines := strings.Split(note, "\n")[1:]
	for ; len(lines) >= each; lines = lines[each:] {
		w := store.Wait{Waiter: lines[0], Key: lines[1], Elsewhere: lines[3] == "1"}
		if ms, err := strconv.ParseInt(lines[2], 10, 64); err == nil && ms > 0 {
			w.Until = time.UnixMilli(ms)
		}
		waits = append(waits, w)
	}
	return waits
}
