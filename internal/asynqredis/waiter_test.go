package asynqredis_test

import (
	"testing"

	"github.com/sidingq/siding/internal/asynqredis"
)

func TestParseWaiter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, queue, id string
		ok              bool
	}{
		{asynqredis.WaiterName("default", "5f1c"), "default", "5f1c", true},
		{asynqredis.WaiterName("a:b", "c:d:e"), "a:b", "c:d:e", true},
		{asynqredis.WaiterName("", ""), "", "", true},
		{asynqredis.WaiterName("7:x", "7:y"), "7:x", "7:y", true},
		{asynqredis.WaiterName("größe", "id"), "größe", "id", true},
		{name: ""},
		{name: ":"},
		{name: "3"},
		{name: "3:abc"},
		{name: "3:abcd"},
		{name: "4:abc:id"},
		{name: "-1:abc:id"},
		{name: "x:abc:id"},
		{name: "99999999999999999999:abc:id"},
		{name: "a waiter of another program"},
	} {
		queue, id, ok := asynqredis.ParseWaiter(tt.name)
		if queue != tt.queue || id != tt.id || ok != tt.ok {
			t.Errorf("%q: want %q, %q, %v, have %q, %q, %v", tt.name, tt.queue, tt.id, tt.ok, queue, id, ok)
		}
	}
}

// A wait queue may hold what other programs have put there. ParseWaiter must not panic, and must
// accept only the names that WaiterName makes.
func FuzzParseWaiter(f *testing.F) {
	f.Add("7:default:5f1c")
	f.Add("3:a:b:c:d")
	f.Add("0::")
	f.Add("-1:x")
	f.Add("+7:default:5f1c")
	f.Fuzz(func(t *testing.T, name string) {
		queue, id, ok := asynqredis.ParseWaiter(name)
		if !ok {
			return
		}
		queue2, id2, ok := asynqredis.ParseWaiter(asynqredis.WaiterName(queue, id))
		if !ok || queue2 != queue || id2 != id {
			t.Errorf("%q: want %q, %q again, have %q, %q, %v", name, queue, id, queue2, id2, ok)
		}
	})
}
