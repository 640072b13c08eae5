package script

import (
	"log/slog"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// The version of Redis that scripts and INFO show.
const (
	redisVersion       = "7.2.0"
	redisVersionNumber = 0x070200
)

func (s *state) redisLibrary() *lua.LTable {
	t := s.table(map[string]lua.LGFunction{
		"call": s.redisCall, "pcall": s.redisPcall,
		"error_reply": redisErrorReply, "status_reply": redisStatusReply,
		"sha1hex": s.redisSHA1, "log": s.redisLog, "setresp": s.redisSetResp,
		"set_repl": redisSetRepl, "replicate_commands": redisTrue, "breakpoint": redisFalse,
		"debug": func(*lua.LState) int { return 0 },
	})
	for name, n := range map[string]int{
		"LOG_DEBUG": 0, "LOG_VERBOSE": 1, "LOG_NOTICE": 2, "LOG_WARNING": 3,
		"REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3,
		"REDIS_VERSION_NUM": redisVersionNumber,
	} {
		t.RawSetString(name, lua.LNumber(n))
	}
	t.RawSetString("REDIS_VERSION", lua.LString(redisVersion))
	return t
}

func redisTrue(L *lua.LState) int  { L.Push(lua.LTrue); return 1 }
func redisFalse(L *lua.LState) int { L.Push(lua.LFalse); return 1 }

// field returns a table with one field, as Lua represents statuses, errors and RESP3 types.
func field(name string, v lua.LValue) *lua.LTable {
	t := newTable(0, 1)
	t.RawSetString(name, v)
	return t
}

func errorTable(text string) *lua.LTable { return field("err", lua.LString(text)) }

// misuse raises an error of the redis library, without a position.
func misuse(L *lua.LState, text string) { L.Error(errorTable("ERR "+text), 0) }

func redisErrorReply(L *lua.LState) int {
	text, ok := L.Get(1).(lua.LString)
	if !ok || L.GetTop() != 1 {
		return push(L, errorTable("ERR wrong number or type of arguments"))
	}
	code, message, found := strings.Cut(strings.TrimPrefix(cString(string(text)), "-"), " ")
	if !found {
		code, message = "ERR", code
	}
	return push(L, errorTable(code+" "+strings.Trim(message, "\r\n")))
}

func redisStatusReply(L *lua.LState) int {
	text, ok := L.Get(1).(lua.LString)
	if !ok || L.GetTop() != 1 {
		return push(L, errorTable("ERR wrong number or type of arguments"))
	}
	return push(L, field("ok", text))
}

func (s *state) redisSHA1(L *lua.LState) int {
	if L.GetTop() != 1 {
		misuse(L, "wrong number of arguments")
	}
	text, _ := plainString(L.Get(1))
	s.spend(L, len(text)/16)
	return push(L, lua.LString(shaOf(text)))
}

func (s *state) redisLog(L *lua.LState) int {
	n := L.GetTop()
	if n < 2 {
		misuse(L, "redis.log() requires two arguments or more.")
	}
	if _, ok := L.Get(1).(lua.LNumber); !ok {
		misuse(L, "First argument must be a number (log level).")
	}
	var level slog.Level
	switch checkInt(L, 1) {
	case 0, 1:
		level = slog.LevelDebug
	case 2:
		level = slog.LevelInfo
	case 3:
		level = slog.LevelWarn
	default:
		misuse(L, "Invalid debug level.")
	}
	var words []string
	for i := 2; i <= n; i++ {
		if word, ok := plainString(L.Get(i)); ok {
			words = append(words, word)
		}
	}
	s.spend(L, 100)
	if s.logger != nil {
		s.logger.Log(s.Context, level, "redis.log", "message", cut(strings.Join(words, " ")))
	}
	return 0
}

// maxLogMessage is the maximum length of a script's log message in bytes.
const maxLogMessage = 1024

func cut(message string) string { return message[:min(len(message), maxLogMessage)] }

func (s *state) redisSetResp(L *lua.LState) int {
	if L.GetTop() != 1 {
		misuse(L, "redis.setresp() requires one argument.")
	}
	version, _ := plainNumber(L.Get(1))
	if version != 2 && version != 3 {
		misuse(L, "RESP version must be 2 or 3.")
	}
	s.proto = int(version)
	return 0
}

// redisSetRepl only checks its argument: a transaction is durable as a whole, and there are no
// replicas.
func redisSetRepl(L *lua.LState) int {
	if L.GetTop() != 1 {
		misuse(L, "redis.set_repl() requires two arguments.")
	}
	if flags, _ := plainNumber(L.Get(1)); toInt(flags)&^3 != 0 {
		misuse(L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return 0
}
