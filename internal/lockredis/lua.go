package lockredis

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var luaFiles embed.FS

// Script returns the script of a file, <name>.lua of files.
func Script(files fs.FS, name string) *redis.Script { return redis.NewScript(LuaText(files, name)) }

// LuaText returns a whole script as Redis gets it: the file <name>.lua, in which the line "-- include <other>" stands for
// the file <other>.lua, of files or of this package. An included file is a function of its own, so that the script gets from it
// what it returns and no more. It includes nothing itself. With the line "-- include <Other>", in upper case, the script gets a
// function of that name, which returns them in a table and makes them when it is called for the first time: Redis makes all
// functions of a script anew each time that it runs.
//
// What follows "-- include common" is a function, too. When Lua makes a function, it searches for each local variable of the
// function around it that it uses, but not for one that this function has from outside itself. That saves an eighth of a step.
func LuaText(files fs.FS, name string) string {
	var text strings.Builder
	end := ""
	for line := range strings.Lines(luaFile(files, name)) {
		expanded := line
		if other, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			body := strings.TrimRight(luaFile(files, strings.ToLower(other)), "\n")
			last := strings.LastIndex(body, "\n") + 1
			names := strings.TrimPrefix(body[last:], "return ")
			if part := strings.ToLower(other); part != other {
				pairs := strings.Split(names, ", ")
				for i, name := range pairs {
					pairs[i] = name + " = " + name
				}
				expanded = "local " + other + " = lazily(function()\n" + body[:last] + "return {" + strings.Join(pairs, ", ") + "}\nend)\n"
			} else {
				expanded = "local " + names + " = (function()\n" + body + "\nend)()\n"
			}
		}
		if line == "-- include common\n" {
			expanded += "return (function()\n"
			end = "end)()\n"
		}
		text.WriteString(expanded)
	}
	return text.String() + end
}

func luaFile(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		text, err = luaFiles.ReadFile(name + ".lua")
	}
	if err != nil {
		panic(fmt.Sprintf("lockredis: %v", err)) // a mistake in the scripts, seen by each of their tests
	}
	return string(text)
}

// RunAll runs a script for each of n parts, and returns the calls in order, each with its own error. It
// takes one round trip, or one to each node of a Cluster at the same time. A Redis that does not know
// the script costs a second round trip, once. part is called for each i, once or twice.
func RunAll(ctx context.Context, rdb redis.UniversalClient, script *redis.Script, n int, part func(i int) (keys []string, argv []any)) []*redis.Cmd {
	calls, ask := make([]*redis.Cmd, n), make([]int, n)
	for i := range ask {
		ask[i] = i
	}
	for _, eval := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.EvalSha, script.Eval} {
		if len(ask) == 0 {
			break
		}
		pipe := rdb.Pipeline()
		for _, i := range ask {
			keys, argv := part(i)
			calls[i] = eval(ctx, pipe, keys, argv...)
		}
		_, _ = pipe.Exec(ctx) // the errors are those of the calls
		ask = slices.DeleteFunc(ask, func(i int) bool { return !redis.HasErrorPrefix(calls[i].Err(), "NOSCRIPT") })
	}
	return calls
}
