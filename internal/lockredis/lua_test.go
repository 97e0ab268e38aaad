package lockredis

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sidingq/siding/internal/testenv/luatest"
)

func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	luatest.Check(t, luaFiles)
}

func TestScriptIncludes(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"one.lua":  {Data: []byte("return 1\n-- include two\n  -- include notify\n")},
		"two.lua":  {Data: []byte("-- two\n")},
		"none.lua": {Data: []byte("-- include missing\n")},
	}
	if have, want := LuaText(files, "one"), "return 1\n-- two\n"+luaFile(luaFiles, "notify"); have != want {
		t.Errorf("want the script's own file and notify.lua in it, have\n%s", have)
	}
	if strings.Contains(LuaText(luaFiles, "release"), "-- include") {
		t.Error("want all included")
	}
	defer func() {
		if recover() == nil {
			t.Error("want a panic for a file that is not there")
		}
	}()
	Script(files, "none")
}
