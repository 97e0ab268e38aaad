package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A simRedis is the Redis of a simulation: the data and the commands of miniredis, without a connection, and with one Lua
// for all calls of scripts, as making a new one costs more than a step. Whoever calls it holds the lock of the world.
type simRedis struct {
	redis.Scripter // nil: nobody calls the others

	db       *miniredis.Miniredis
	peer     *server.Peer
	out      *bytes.Buffer
	lua      *lua.LState
	offset   time.Duration // of Redis' clock to that of the servers
	edit     func(script string) string
	protos   map[string]*lua.FunctionProto // by their texts, before edit
	tables   bool                          // whether redis.call raises tables, as Redis does, or texts, as miniredis does
	order    map[string]int                // of hashes, by when the last script wrote them
	commands int
	breaks   int // at so many commands from now a script fails; 0 for never
}

// A redisStatus is a reply such as OK.
type redisStatus string

// A redisError is an error reply.
type redisError string

func (e redisError) Error() string { return string(e) }

// RedisError makes it an error of Redis for go-redis.
func (redisError) RedisError() {}

func newSimRedis(edit func(string) string, tables bool) *simRedis {
	m := &simRedis{db: miniredis.NewMiniRedis(), out: &bytes.Buffer{}, edit: edit, tables: tables, protos: make(map[string]*lua.FunctionProto), order: make(map[string]int)}
	conn, err := m.db.Dial() // starts it without a listener
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
	m.db.ClockTTL(true)
	m.peer = server.NewPeer(bufio.NewWriter(m.out))
	m.lua = lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		m.lua.Push(m.lua.NewFunction(open))
		m.lua.Push(lua.LString(name))
		m.lua.Call(1, 0)
	}
	redisTable := m.lua.NewTable()
	redisTable.RawSetString("call", m.lua.NewFunction(func(l *lua.LState) int { return m.luaCall(l, true) }))
	redisTable.RawSetString("pcall", m.lua.NewFunction(func(l *lua.LState) int { return m.luaCall(l, false) }))
	redisTable.RawSetString("error_reply", m.lua.NewFunction(func(l *lua.LState) int {
		l.Push(m.errorTable(l.CheckString(1)))
		return 1
	}))
	m.lua.SetGlobal("redis", redisTable)
	return m
}

func (m *simRedis) close() {
	m.lua.Close()
	m.db.Close()
}

// now is Redis' time.
func (m *simRedis) now() time.Time { return time.Now().Add(m.offset) }

// tick brings Redis' clock, and what it expires, up to date.
func (m *simRedis) tick() { m.db.SetTime(m.now()) }

// step moves Redis' clock. What expires does so by that clock.
func (m *simRedis) step(by time.Duration) {
	m.tick()
	m.do("PING")
	m.offset += by
	m.tick()
	if by < 0 {
		m.db.FastForward(by)
	}
	m.do("PING")
}

// snapshot keeps the data as they are, for restore.
func (m *simRedis) snapshot() {
	m.tick()
	m.db.DB(1).FlushDB()
	for _, key := range m.db.Keys() {
		if err := m.db.Copy(0, key, 1, key); err != nil {
			panic(err)
		}
	}
}

// restore forgets what was written since the snapshot.
func (m *simRedis) restore() {
	m.tick()
	m.db.SwapDB(0, 1)
	m.db.DB(1).FlushDB()
}

// do runs a command. The reply is an int64, a text, a []any, nil, or a redisError.
func (m *simRedis) do(args ...string) any {
	m.out.Reset()
	m.db.Server().Dispatch(m.peer, args)
	m.peer.Flush()
	reply, _ := readReply(m.out.Bytes())
	return reply
}

// run runs a command at Redis' time of now.
func (m *simRedis) run(args ...string) any {
	m.tick()
	return m.do(args...)
}

func readReply(b []byte) (reply any, rest []byte) {
	end := bytes.IndexByte(b, '\r')
	line, rest := string(b[1:end]), b[end+2:]
	number := func() int {
		n, err := strconv.Atoi(line)
		if err != nil {
			panic(err)
		}
		return n
	}
	switch b[0] {
	case '+':
		return redisStatus(line), rest
	case '-':
		return redisError(line), rest
	case ':':
		return int64(number()), rest
	case '$':
		n := number()
		if n < 0 {
			return nil, rest
		}
		return string(rest[:n]), rest[n+2:]
	case '*':
		n := number()
		if n < 0 {
			return nil, rest
		}
		list := make([]any, n)
		for i := range list {
			list[i], rest = readReply(rest)
		}
		return list, rest
	}
	panic("reply of miniredis: " + line)
}

// protos are the scripts that were compiled, by their texts.
var protos sync.Map

func compile(text string) *lua.FunctionProto {
	if p, ok := protos.Load(text); ok {
		return p.(*lua.FunctionProto) //nolint:forcetypeassert // it is one
	}
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	if err != nil {
		panic(err)
	}
	p, err := lua.Compile(chunk, "user_script")
	if err != nil {
		panic(err)
	}
	protos.Store(text, p)
	return p
}

// texts are the scripts by their hashes.
var texts sync.Map

// script runs a script.
func (m *simRedis) script(text string, keys []string, args []any) (any, error) {
	m.tick()
	clear(m.order)
	proto, ok := m.protos[text]
	if !ok {
		edited := text
		if m.edit != nil {
			edited = m.edit(text)
		}
		proto = compile(edited)
		m.protos[text] = proto
	}
	list := func(n int, at func(i int) string) *lua.LTable {
		t := m.lua.CreateTable(n, 0)
		for i := range n {
			t.RawSetInt(i+1, lua.LString(at(i)))
		}
		return t
	}
	m.lua.SetGlobal("KEYS", list(len(keys), func(i int) string { return keys[i] }))
	m.lua.SetGlobal("ARGV", list(len(args), func(i int) string { return textOf(args[i]) }))
	m.lua.Push(m.lua.NewFunctionFromProto(proto))
	err := m.lua.PCall(0, 1, nil)
	m.breaks = 0
	if err != nil {
		m.lua.SetTop(0)
		if failed, ok := errors.AsType[*lua.ApiError](err); ok {
			if t, ok := failed.Object.(*lua.LTable); ok {
				return nil, redisError(t.RawGetString("err").String())
			}
			return nil, redisError("ERR " + failed.Object.String())
		}
		return nil, redisError("ERR " + err.Error())
	}
	value := m.lua.Get(-1)
	m.lua.Pop(1)
	reply := fromLua(value)
	if failed, ok := reply.(redisError); ok {
		return nil, failed
	}
	if reply == nil {
		return nil, redis.Nil
	}
	return reply, nil
}

// after reports whether the last script wrote one hash after another.
func (m *simRedis) after(one, other string) bool {
	a, ok := m.order[one]
	b, also := m.order[other]
	return ok && also && a > b
}

func textOf(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	panic(fmt.Sprintf("argument %T", arg))
}

func (m *simRedis) errorTable(text string) *lua.LTable {
	t := m.lua.NewTable()
	t.RawSetString("err", lua.LString(text))
	return t
}

// luaCall is redis.call and redis.pcall.
func (m *simRedis) luaCall(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = strconv.FormatFloat(float64(v), 'g', 17, 64)
			if n := int64(v); lua.LNumber(n) == v {
				args[i] = strconv.FormatInt(n, 10)
			}
		default:
			l.RaiseError("Lua redis() command arguments must be strings or integers")
		}
	}
	if m.commands++; args[0] == "HSET" {
		m.order[args[1]] = m.commands
	}
	var reply any
	if m.breaks--; m.breaks == 0 {
		reply = redisError("OOM command not allowed when used memory > 'maxmemory'.")
	} else {
		reply = m.do(args...)
	}
	if failed, ok := reply.(redisError); ok && raises {
		if m.tables {
			l.Error(m.errorTable(string(failed)), 1)
		}
		l.RaiseError("%s", string(failed))
	}
	l.Push(m.toLua(reply))
	return 1
}

func (m *simRedis) toLua(reply any) lua.LValue {
	switch v := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case redisError:
		return m.errorTable(string(v))
	case redisStatus:
		t := m.lua.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case []any:
		t := m.lua.CreateTable(len(v), 0)
		for i, one := range v {
			t.RawSetInt(i+1, m.toLua(one))
		}
		return t
	}
	panic(fmt.Sprintf("reply %T", reply))
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if failed := v.RawGetString("err"); failed != lua.LNil {
			return redisError(failed.String())
		}
		list := make([]any, 0, v.Len())
		for i := 1; ; i++ {
			one := v.RawGetInt(i)
			if one == lua.LNil {
				return list
			}
			list = append(list, fromLua(one))
		}
	}
	return nil
}

// The rest is what go-redis' Script calls.

func (m *simRedis) cmd(text string, keys []string, args []any) *redis.Cmd {
	reply, err := m.script(text, keys, args)
	return redis.NewCmdResult(reply, err)
}

func (m *simRedis) Eval(_ context.Context, text string, keys []string, args ...any) *redis.Cmd {
	sum := sha1.Sum([]byte(text))
	texts.Store(hex.EncodeToString(sum[:]), text)
	return m.cmd(text, keys, args)
}

func (m *simRedis) EvalSha(_ context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	text, ok := texts.Load(hash)
	if !ok {
		return redis.NewCmdResult(nil, redisError("NOSCRIPT No matching script. Please use EVAL."))
	}
	return m.cmd(text.(string), keys, args) //nolint:forcetypeassert // it is one
}
