package taskredis

import (
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
)

//go:embed *.lua
var luaFiles embed.FS

// script returns the script of the file <name>.lua. What it shares with the scripts on locks is in package lockredis.
func script(name string) *redis.Script { return lockredis.Script(luaFiles, name) }
