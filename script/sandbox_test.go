package script

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

func TestProxiesOfTheSandboxAreEmpty(t *testing.T) {
	r := New(Config{})
	s := newState(nil, newMeter(r.clock, 1, nil))
	if len(s.contents) < 6 {
		t.Errorf("the sandbox has %d proxies, want at least 6", len(s.contents))
	}
	for proxy, t1 := range s.contents {
		if k, _ := proxy.Next(lua.LNil); k != lua.LNil {
			t.Errorf("the proxy of the sandbox has the key %v, want none", k)
		}
		t1.ForEach(func(k, v lua.LValue) {
			if inner, ok := v.(*lua.LTable); ok && s.contents[inner] == nil && k != lua.LString("__index") {
				t.Errorf("the table %v of the sandbox has no proxy", k)
			}
		})
	}
}

func TestScriptsCannotChangeTheSandbox(t *testing.T) {
	tampering := []string{
		`x = 1`, `_G.x = 1`, `rawset(_G, 'x', 1)`, `_G._G.x = 1`, `KEYS = 1`,
		`string.x = 1`, `string.rep = nil`, `rawset(string, 'rep', 1)`, `redis.call = 1`, `table.insert(string, 1)`,
		`table.insert(_G, 1)`, `table.remove(_G)`, `math.pi = 3`,
		`setmetatable(_G, {})`, `setmetatable(string, {})`, `setmetatable('', {})`, `setmetatable(1, {})`,
		`getmetatable('').__index = 1`, `getmetatable('').__add = function() end`, `getmetatable(_G).__index = nil`,
		`rawset(getmetatable(''), '__index', 1)`, `rawset(getmetatable('').__index, 'rep', 1)`,
		`function string.rep() end`, `function f() end`, `next(_G, 'string')()`,
		`getfenv(0).x = 1`, `setfenv(1, {})`, `debug.getregistry()`, `package.loaded.x = 1`, `require('x')`,
		`dofile('/etc/passwd')`, `loadfile('/etc/passwd')()`, `io.open('/etc/passwd')`, `os.exit(1)`, `print(1)`, `module('x')`,
		`newproxy(true)`, `_printregs()`,
		`local t = setmetatable({}, _G) t.x()`,
	}
	r := New(Config{})
	r.slots, r.free = r.slots[:1], make(chan *slot, 1)
	r.free <- r.slots[0]
	for _, source := range tampering {
		if got := run(t, r, source); !strings.HasPrefix(got, "-ERR") {
			t.Errorf("the script %s\nreplied %q, want an error: it changes the sandbox", source, got)
		}
		if got := run(t, r, "pcall(function() "+source+" end)"); got != "$-1\r\n" {
			t.Errorf("the script %s\nin pcall replied %q, want nil", source, got)
		}
		expect(t, r, `return {('x'):rep(2), tostring(rawget(_G,'x')), type(KEYS), redis.call('echo','e'), tostring(rawget(string,'x')), math.floor(math.pi)}`,
			"*6\r\n$2\r\nxx\r\n$3\r\nnil\r\n$5\r\ntable\r\n$1\r\ne\r\n$3\r\nnil\r\n:3\r\n")
	}
}

// Redis has these names. No library for locks uses them.
func TestRefusedNamesDoNotExist(t *testing.T) {
	r := New(Config{})
	for _, name := range []string{"bit", "cjson", "cmsgpack", "collectgarbage", "coroutine", "gcinfo", "load", "loadstring", "struct", "xpcall"} {
		want := "-ERR user_script:1: Script attempted to access nonexistent global variable '" + name + "' script: "
		if got := run(t, r, "return "+name); !strings.HasPrefix(got, want) {
			t.Errorf("a script that uses %s replied %q, want %q", name, got, want)
		}
	}
}

func TestPatternsAreRefused(t *testing.T) {
	r := New(Config{})
	for source, want := range map[string]string{
		"return ('f(a)'):find('%a')":        "patterns are not supported: string.find needs true as its fourth argument",
		"return ('a.b'):find('.', 2)":       "patterns are not supported: string.find needs true as its fourth argument",
		"return ('aa'):match('a')":          "string.match is not supported: this is a lock server",
		"return string.gsub('a', 'a', 'b')": "string.gsub is not supported: this is a lock server",
		"table.sort({2, 1})":                "table.sort is not supported: this is a lock server",
	} {
		if got := run(t, r, source); !strings.HasPrefix(got, "-ERR user_script:1: "+want) {
			t.Errorf("script %s\n got %q\nwant %q", source, got, want)
		}
	}
}

func TestTablesOfRESP3AreRefused(t *testing.T) {
	r := New(Config{})
	for name, v := range map[string]string{"double": "1.5", "map": "{}", "set": "{}", "big_number": "'1'", "verbatim_string": "{}"} {
		want := "-ERR scripts cannot return a table with the field '" + name + "'\r\n"
		expect(t, r, "return {1, {"+name+" = "+v+"}}", want)
	}
}

func TestStateIsUsableAfterAFailedScript(t *testing.T) {
	r := New(Config{})
	r.slots, r.free = r.slots[:1], make(chan *slot, 1)
	r.free <- r.slots[0]
	expect(t, r, `return 1`, ":1\r\n")
	state := r.slots[0].state
	for _, source := range []string{
		`error('x')`, `error({err='X x'})`, `return nil + 1`, `return redis.call('none')`,
		`local a, x = 1, 2 local function f() x = x + a error(x) end f()`,
		`local t = {} for i = 1, 100 do local n = i t[i] = function() n = n + 1 return n end end for i = 1, 100 do t[i]() end error(t)`,
		`local function f() return 1 + f() end return f()`,
		`setmetatable({}, {__index = function(t, k) error(k) end}).x()`,
	} {
		if got := run(t, r, source); !strings.HasPrefix(got, "-") {
			t.Errorf("the failing script %s: %q; want an error", source, got)
		}
		if r.slots[0].state != state {
			t.Errorf("after the failing script %s the Lua state was replaced", source)
			state = r.slots[0].state
		}
		expect(t, r, `local a, x = 3, 5 local function f() x = x + a return x end f() return {f(), x, select('#', ...)}`, "*3\r\n:11\r\n:11\r\n:0\r\n")
	}
}

func TestEachRunHasItsOwnRandomNumbers(t *testing.T) {
	r := New(Config{})
	const draw = `local t = {} for i = 1, 4 do t[i] = tostring(math.random()) end return table.concat(t, ' ')`
	if a, b := run(t, r, draw), run(t, r, draw); a == b {
		t.Errorf("two runs drew the same random numbers: %q", a)
	}
}

func TestKeysAndArgumentsBelongToOneRun(t *testing.T) {
	r := New(Config{})
	c := Call{Source: `KEYS[1] = KEYS[1] .. '!' return {KEYS[1], ARGV[1], #KEYS, #ARGV, KEYS[2] or 'none'}`}
	for _, key := range []string{"a", "b", "\x00\r\n\xff"} {
		c.Keys, c.Args = [][]byte{[]byte(key)}, [][]byte{[]byte(key), nil}
		want := "*5\r\n$" + string(rune('1'+len(key))) + "\r\n" + key + "!\r\n$" + string(rune('0'+len(key))) + "\r\n" + key + "\r\n:1\r\n:2\r\n$4\r\nnone\r\n"
		if got := eval(t, r, echo, c); got != want {
			t.Errorf("the run with key %q replied %q, want %q", key, got, want)
		}
	}
	expect(t, r, `return {#KEYS, #ARGV}`, "*2\r\n:0\r\n:0\r\n")
}

func TestLongArraysAreArrays(t *testing.T) {
	r := New(Config{})
	expect(t, r, `local t = {} for i = 1, 40000 do t[#t+1] = i end
		table.insert(t, 1, 0) local last = table.remove(t)
		return {#t, last, t[1], t[40000], #table.concat(t), (select('#', unpack(t, 1, 7000)))}`,
		"*6\r\n:40000\r\n:40000\r\n:0\r\n:39999\r\n:188890\r\n:7000\r\n")
}
