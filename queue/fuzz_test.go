package queue

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
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

// Redis may tell anything of itself. A finding has a value and advice, or neither.
func FuzzCheckTraits(f *testing.F) {
	f.Add("7.0.15", "noeviction", "0", "yes", "everysec", "")
	f.Add("6", "volatile-", "x", "no", "no", "3600 1")
	f.Add("7", "", "1", "yes", "no", "")
	f.Fuzz(func(t *testing.T, version, policy, limit, aof, fsync, save string) {
		found := traits{
			"redis_version": version, "maxmemory-policy": policy, "maxmemory": limit,
			"appendonly": aof, "appendfsync": fsync, "save": save,
		}.check()
		for _, trait := range found {
			if trait.Trait == "" || trait.Have == "" && trait.Advice != "" {
				t.Errorf("want a trait and what it is, have %+v", trait)
			}
		}
		expect.That(t, len(found) <= 3, "want one finding for each of three questions, have %+v", found)
	})
}
