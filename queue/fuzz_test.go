package queue

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// Whatever a header says is the name of a lock, or refused with the task's type.
func FuzzHeaderResource(f *testing.F) {
	for _, seed := range []string{"", "order:1", "{order}:1", "a\x00b", "\xff", strings.Repeat("x", 1000), "\nb\na", "\n0"} {
		f.Add("order:audit", seed)
	}
	f.Fuzz(func(t *testing.T, kind, header string) {
		have, err := new(Server).resourceOf(&taskredis.Message{Type: kind, Headers: map[string]string{HeaderResource: header}}, false)
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), kind+": resource: "):
			t.Errorf("%q: want an error that names the task's type, have %v", header, err)
		case err == nil && (have != store.Join(store.Names(header)...) || slices.ContainsFunc(store.Names(have), func(name string) bool { return store.CheckResource(name) != nil })):
			t.Errorf("%q: want it in one spelling, or refused, have %q", header, have)
		}
	})
}
