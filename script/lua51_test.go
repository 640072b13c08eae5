package script

import (
	"fmt"
	"strings"
	"testing"
)

// computed are scripts whose result depends on a rule of Lua 5.1. want is the result of Redis 7.0.
var computed = []struct{ rule, source, want string }{
	{"all values are read before a variable is assigned", "local a, b = 1, 2 a, b = b, a return a .. b", "21"},
	{"all values are read before a variable is assigned", "local x, y = 10, 4 while y ~= 0 do x, y = y, x % y end return x .. ''", "2"},
	{"all values are read before a variable is assigned", "local a = 1 local function f() return a end a = 2, f() local t = {} t.a, a, t.b = a, 5, f() return a .. t.a .. t.b", "522"},
	{"all values are read before a variable is assigned", "local a = 0 local f = function() return a end local b a, b = 7, f() return a .. b", "70"},
	{"the operands of targets are read first", "local i, t = 1, {} i, t[i] = i + 1, 20 return i .. tostring(t[1]) .. tostring(t[2])", "220nil"},
	{"the operands of targets are read first", "local t = {} local u = t t.x, t = 5, {} return tostring(u.x) .. tostring(t.x)", "5nil"},
	{"the last target is assigned to first", "local t = {} t.x, t.x = 1, 2 return t.x .. ''", "1"},
	{"the last target is assigned to first", "local s = '' local t = setmetatable({}, {__newindex = function(_, k) s = s .. k end}) t.a, t.b, t.c = 1, 2, 3 return s", "cba"},
	{"the last call fills the targets", "local function f() return 1, 2 end local a, b, c, d a, b, c, d = 0, f() return a .. b .. c .. tostring(d)", "012nil"},

	{"bounds of for may be numeric strings", "local n = 0 for i = 1, '3' do n = n + i end return n .. ''", "6"},
	{"bounds of for may be numeric strings", "local s = '' for i = ' 3 ', '0x1', '-1' do s = s .. i end return s", "321"},
	{"bounds of for are numbers", "return tostring((pcall(function() for i = 1, 'x' do end end))) .. select(2, pcall(function() for i = {}, 1 do end end)):sub(16)", "false'for' initial value must be a number"},

	{"a modulo is that of C's doubles", "local a, b = 4, -1/3 return tostring(a % b) .. ' ' .. 0 % (1/0) .. ' ' .. -5 % (1/0) .. ' ' .. 5.5 % -2 .. ' ' .. 5 % 0", "0 -nan -nan -0.5 -nan"},
	{"a negated zero has its sign", "local z = 0 return -z .. ' ' .. tostring(-z) .. ' ' .. redis.call('echo', -z)", "-0 -0 -0"},
	{"NaN is shown as in C", "return tostring(0/0) .. ' ' .. tostring(-(0/0)) .. ' ' .. (-8)^(1/3) .. ' ' .. math.fmod(1, 0) .. ' ' .. math.log(-1)", "-nan nan -nan -nan -nan"},
	{"NaN is shown as in C", "return math.pow(0/0, 3) .. ' ' .. math.pow(0/0, 2) .. ' ' .. math.pow(-(0/0), 3) .. ' ' .. math.pow(2, 0/0) .. ' ' .. math.pow(-8, 1/3)", "nan -nan nan -nan -nan"},
	{"numeric strings are read as in C", "return '010' + 1 .. ' ' .. '0x1p4' + 0 .. ' ' .. ' 1e1 ' * 1 .. ' ' .. tostring('-inf' + 0) .. ' ' .. tostring(tonumber('1_0')) .. tostring(tonumber('0b1'))", "11 16 10 -inf nilnil"},
	{"numerals are read as in Lua", "return 0010 .. ' ' .. 0xffffffffffffffff .. ' ' .. 1e999", "10 1.844674407371e+19 inf"},
	{"a number of another base is read as C's unsigned long", "return tonumber('-ff', 16) .. ' ' .. tostring(tonumber('zz', 36)) .. ' ' .. tostring(tonumber('8', 8)) .. ' ' .. tonumber(('z'):rep(99), 36)", "1.844674407371e+19 1295 nil 1.844674407371e+19"},
	{"a number that is no C int loses its high bits", "return ('x'):rep(2^32 + 1) .. ('x'):rep(1e300) .. table.concat({1, 2}, ',', 2^32 + 1)", "x1,2"},
	{"string.format is C's printf", "return string.format('%d|%x|%x|%s|%+u|%5.3d|%.0d|%g', 1e20, -1, 1e19, 'a\\0b', 5, 7, 0, 1/0)", "-9223372036854775808|ffffffffffffffff|8ac7230489e80000|a|5|  007||inf"},

	{"a library function that pcall calls has no position", "return select(2, pcall(string.rep)) .. select(2, pcall(table.concat, {{}})) .. select(2, pcall(error, 'x'))", "bad argument #1 to '?' (string expected, got no value)invalid value (table) at index 1 in table for 'concat'x"},
	{"a library function that a script calls has its position", "return select(2, pcall(function() return math.floor() end))", "user_script:1: bad argument #1 to 'floor' (number expected, got no value)"},

	{"a parameter may be assigned the result of a call that takes it", "local function f(s) s = s .. 'x' return s end local function g(s) s = #s return s end local function h(s) s = (f(s)) return s end return f('a') .. g('abc') .. h('b')", "ax3bx"},
	{"and and or do not overwrite their target", "local a, b, c = 1, 2 a = (b or c) and a return a .. ''", "1"},
	{"a field of a constructor takes one value", "local function f() return 1, 2, 3 end local t = {5, x = f()} return #t .. tostring(t[2]) .. t.x", "1nil1"},
	{"a variable is shared with functions after an error", "local x = 1 local f = function() return x end pcall(error) x = 2 return f() .. ''", "2"},
	{"a variable is shared with functions after an error", "local n = 0 local function add() n = n + 1 end for i = 1, 3 do add() pcall(function() add() error('x') end) end return n .. ''", "6"},
	{"a variable that a function changes is read last", "local x = 7 local function f() x = 3 return 2 end return x % f() + x .. ''", "4"},
	{"a captured variable outlives a break", "local f while true do if true then local y = 1 f = function() return y end break end end local z, w, q = 99, 98, 97 return f() .. z", "199"},
	{"each turn of a loop has variables of its own", "local fs = {} for i = 1, 3 do fs[i] = function() i = i * 2 return i end i = i + 10 end return fs[1]() .. fs[1]() .. fs[2]()", "224424"},
	{"a local function value sees the outer name", "local tostring = function(x) return '<' .. tostring(x) .. '>' end return tostring(1)", "<1>"},
	{"a local function calls itself", "local function f(n) if n == 0 then return '.' end return n .. f(n - 1) end return f(3)", "321."},
	{"a loop may begin with a jump", "local n, v = 0, 1 for k in next, {1, 2, 3} do if nil then v = v end n = n + 1 if n > 9 then break end end return n .. ''", "3"},
	{"a loop may begin with a jump", "local n, x = 0, 5 for k in next, {1, 2, 3} do local a, b = (false and x or x), k n = n + 1 if n > 9 then break end end return n .. ''", "3"},
	{"arguments that an iterator does not get are nil", "local function f(s, c) return c == nil and tostring(s) or nil end for x in f do return x end", "nil"},
	{"arguments that an iterator does not get are nil", "local function g() return 7, nil end for x in function(s, c) return c == nil and s or nil end, g() do return x .. '' end", "7"},
	{"a NUL ends a number", "return tonumber('10\\0x') .. ''", "10"},
}

func TestScriptsComputeAsLua51(t *testing.T) {
	r := New(Config{})
	for _, c := range computed {
		t.Run(c.rule, func(t *testing.T) {
			expect(t, r, c.source, fmt.Sprintf("$%d\r\n%s\r\n", len(c.want), c.want))
		})
	}
}

// The results in computed must be those of a real Redis.
func TestRedisComputesAsLua51(t *testing.T) {
	conn := realRedis(t)
	for _, c := range computed {
		want := fmt.Sprintf("$%d\r\n%s\r\n", len(c.want), c.want)
		if got := conn.do(t, "EVAL", c.source, "0"); got != want {
			t.Errorf("script %s\n got %q\nwant %q", c.source, got, want)
		}
	}
}

// captures returns a script with a function that captures n variables.
func captures(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "local v%d = 1 ", i)
	}
	b.WriteString("return (function() return 0")
	for i := range n {
		fmt.Fprintf(&b, " + v%d", i)
	}
	return b.String() + " end)()"
}

// Lua 5.1 has this limit. The instructions of gopher-lua have no room for more than 512.
func TestFunctionsCaptureAtMost60Variables(t *testing.T) {
	r := New(Config{})
	if _, err := r.Load(captures(60)); err != nil {
		t.Errorf("Load of a function that captures 60 variables: %v", err)
	}
	if _, err := r.Load(captures(61)); err == nil || !strings.Contains(err.Error(), "more than 60 upvalues") {
		t.Errorf("Load of a function that captures 61 variables: %v; want an error", err)
	}
}
