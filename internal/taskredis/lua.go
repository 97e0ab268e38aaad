package taskredis

import (
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var luaFiles embed.FS

// script returns the script of the file <name>.lua.
func script(name string) *redis.Script { return redis.NewScript(luaText(name)) }

// luaText returns a whole script as Redis gets it: the file <name>.lua, in which the line "-- include <other>" stands
// for the file <other>.lua. An included file includes nothing itself.
func luaText(name string) string {
	var text strings.Builder
	for line := range strings.Lines(luaFile(name)) {
		if other, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			line = luaFile(other)
		}
		text.WriteString(line)
	}
	return text.String()
}

func luaFile(name string) string {
	text, err := luaFiles.ReadFile(name + ".lua")
	if err != nil {
		panic(fmt.Sprintf("taskredis: %v", err)) // a mistake in this package, seen by each of its tests
	}
	return string(text)
}
