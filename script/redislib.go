package script

import (
	"log/slog"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (s *state) redisLibrary() *lua.LTable {
	t := s.table(map[string]lua.LGFunction{
		"call": s.redisCall, "pcall": s.redisPcall,
		"error_reply": ofString(errorReply), "status_reply": ofString(statusReply),
		"log":                s.redisLog,
		"replicate_commands": func(L *lua.LState) int { return push(L, lua.LTrue) },
	})
	for n, name := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		t.RawSetString(name, lua.LNumber(n))
	}
	return t
}

// field returns a table with one field, as Lua represents statuses and errors.
func field(name string, v lua.LValue) *lua.LTable {
	t := newTable(0, 1)
	t.RawSetString(name, v)
	return t
}

func errorTable(text string) *lua.LTable { return field("err", lua.LString(text)) }

// misuse raises an error of the redis library, without a position.
func misuse(L *lua.LState, text string) { L.Error(errorTable("ERR "+text), 0) }

// ofString returns a library function that makes a table of a string.
func ofString(make func(lua.LString) *lua.LTable) lua.LGFunction {
	return func(L *lua.LState) int {
		text, ok := L.Get(1).(lua.LString)
		if !ok || L.GetTop() != 1 {
			return push(L, errorTable("ERR wrong number or type of arguments"))
		}
		return push(L, make(text))
	}
}

func errorReply(text lua.LString) *lua.LTable {
	code, message, found := strings.Cut(strings.TrimPrefix(cString(string(text)), "-"), " ")
	if !found {
		code, message = "ERR", code
	}
	return errorTable(code + " " + strings.Trim(message, "\r\n"))
}

func statusReply(text lua.LString) *lua.LTable { return field("ok", text) }

func (s *state) redisLog(L *lua.LState) int {
	n := L.GetTop()
	if n < 2 {
		misuse(L, "redis.log() requires two arguments or more.")
	}
	if _, ok := L.Get(1).(lua.LNumber); !ok {
		misuse(L, "First argument must be a number (log level).")
	}
	levels := []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}
	level := checkInt(L, 1)
	if level < 0 || level >= len(levels) {
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
		s.logger.Log(s.Context, levels[level], "redis.log", "message", cut(strings.Join(words, " ")))
	}
	return 0
}

// maxLogMessage is the maximum length of a script's log message in bytes.
const maxLogMessage = 1024

func cut(message string) string { return message[:min(len(message), maxLogMessage)] }
