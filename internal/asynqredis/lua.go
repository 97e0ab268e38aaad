package asynqredis

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// lua returns the texts of files, one after the other.
func lua(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		text, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Texts in Lua with local functions that scripts of several packages share. The head of each file says
// which others come before it.
var (
	AttemptLua = textsLua + lua("attempt")
	EncodedLua = lua("encoded")
	NamedLua   = lua("named")
	NotifyLua  = lua("notify")
	ParkingLua = lua("parking")
	WaitsLua   = lua("waits")
	WakeLua    = lua("wake")
)
