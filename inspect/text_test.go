package inspect_test

import (
	"testing"

	"github.com/sidingq/siding/inspect"
)

// What a check tells an operator to type is one argument, whatever the name holds.
func TestShellArg(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"order:536365": "order:536365",
		"":             "''",
		"a b":          "'a b'",
		"it's":         `'it'\''s'`,
		"<b>":          "'<b>'",
		"-n":           "-- -n",
		"--yes x":      "-- '--yes x'",
	} {
		if have := inspect.ShellArg(name); have != want {
			t.Errorf("%q: want %s, have %s", name, want, have)
		}
	}
}
