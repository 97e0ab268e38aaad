package taskredis

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// Both kinds of server take each script.
func TestScriptsLoad(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		for _, name := range expect.Value(fs.Glob(luaFiles, "*.lua"))(t) {
			name = strings.TrimSuffix(name, ".lua")
			expect.Is(t, name, script(name).Load(t.Context(), t.rdb).Err(), nil)
		}
	})
}
