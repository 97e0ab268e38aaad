package asynqredis

import _ "embed"

// Texts in Lua with local functions that scripts of several packages share. The head of each file says
// which others come before it.
var (
	//go:embed attempt.lua
	attemptSource string
	AttemptLua    = textsLua + attemptSource
	//go:embed encoded.lua
	EncodedLua string
	//go:embed named.lua
	NamedLua string
	//go:embed notify.lua
	NotifyLua string
	//go:embed parking.lua
	ParkingLua string
	//go:embed waits.lua
	WaitsLua string
	//go:embed wake.lua
	WakeLua string
)
