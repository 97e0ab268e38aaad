package taskredis

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/luatest"
)

func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	luatest.Check(t, luaFiles)
}

// Both kinds of server take each script.
func TestScriptsLoad(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *server) {
		scripts, _ := luatest.Sources(t, luaFiles)
		for _, name := range scripts {
			if err := script(name).Load(t.Context(), t.rdb).Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
