package lockredis

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestScriptIncludes(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"one.lua":  {Data: []byte("return 1\n-- include two\n  -- include notify\n")},
		"two.lua":  {Data: []byte("-- two\nlocal a, b, c = 1, 2, 3\nreturn a, b\n")},
		"none.lua": {Data: []byte("-- include missing\n")},
	}
	want := "return 1\nlocal a, b = (function()\n-- two\nlocal a, b, c = 1, 2, 3\nreturn a, b\nend)()\n" +
		"local notify = (function()\n" + luaFile(luaFiles, "notify") + "end)()\n"
	if have := LuaText(files, "one"); have != want {
		t.Errorf("want functions of the script's own file and of notify.lua in it, have\n%s", have)
	}
	files["all.lua"] = &fstest.MapFile{Data: []byte("-- include common\nreturn common\n")}
	files["common.lua"] = &fstest.MapFile{Data: []byte("return common\n")}
	want = "local common = (function()\nreturn common\nend)()\nreturn (function()\nreturn common\nend)()\n"
	if have := LuaText(files, "all"); have != want {
		t.Errorf("want a function of what follows common.lua, have\n%s", have)
	}
	expect.That(t, !strings.Contains(LuaText(luaFiles, "release"), "-- include"), "want all included")
	defer func() {
		expect.That(t, recover() != nil, "want a panic for a file that is not there")
	}()
	Script(files, "none")
}
