package inspect_test

import (
	"fmt"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
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
		expect.Equal(t, fmt.Sprintf("%q", name), inspect.ShellArg(name), want)
	}
}
