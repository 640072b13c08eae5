package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp/resp"
)

func TestScriptIsCachedUntilFlush(t *testing.T) {
	r := New(Config{})
	const source = "return 'known'"
	sha := shaOf(source)
	bySHA := Call{SHA: sha}
	const unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	check := func(when string, known bool) {
		t.Helper()
		want := unknown
		if known {
			want = "$5\r\nknown\r\n"
		}
		if r.Exists(sha) != known || r.Exists(strings.ToUpper(sha)) != known {
			t.Errorf("%s: Exists returned %v, want %v", when, !known, known)
		}
		if got := eval(t, r, echo, bySHA); got != want {
			t.Errorf("%s: EVALSHA replied %q, want %q", when, got, want)
		}
	}
	check("at first", false)
	expect(t, r, source, "$5\r\nknown\r\n")
	check("after EVAL", true)
	r.Flush()
	check("after a flush", false)
	if got, err := r.Load(source); got != sha || err != nil {
		t.Errorf("Load after the flush: %q %v; want the same SHA1", got, err)
	}
	check("after a load", true)
	if _, err := r.Load("return ("); err == nil || !strings.HasPrefix(err.Error(), "ERR Error compiling script (new function): user_script:1:") {
		t.Errorf("Load of invalid Lua: %v; want a compiler error", err)
	}
	expect(t, r, "", "$-1\r\n")
}

func TestCacheEvictsEvalsButNoLoadedScripts(t *testing.T) {
	r := New(Config{})
	sha, err := r.Load("return 'stays'")
	if err != nil {
		t.Fatal(err)
	}
	early := "return 'early'"
	run(t, r, early)
	promoted := "return 'promoted'"
	run(t, r, promoted)
	if _, err := r.Load(promoted); err != nil {
		t.Fatal(err)
	}
	for i := range maxScripts {
		run(t, r, fmt.Sprintf("return %d", i))
	}
	if !r.Exists(sha) || !r.Exists(shaOf(promoted)) {
		t.Error("the cache has evicted a loaded script")
	}
	if r.Exists(shaOf(early)) || len(r.cache.bySHA) > maxScripts {
		t.Errorf("the cache has %d scripts, the oldest of EVAL among them: %v; want at most %d, without the oldest", len(r.cache.bySHA), r.Exists(shaOf(early)), maxScripts)
	}
	if bytes := r.cache.bytes; bytes <= 0 || bytes > maxScripts*1000 {
		t.Errorf("the cache counts %d bytes for its scripts", bytes)
	}
}

func TestRepliesBecomeLuaValues(t *testing.T) {
	r := New(Config{})
	const show = `local function show(v)
  if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
  local t = {}
  for k, x in pairs(v) do t[#t+1] = tostring(k) .. '=' .. show(x) end
  if t[2] and t[2] < t[1] then t[1], t[2] = t[2], t[1] end
  return '{' .. table.concat(t, ' ') .. '}'
end
return show(redis.pcall('x'))`
	for reply, want := range map[string]string{
		":-5\r\n":                   "number:-5",
		"$2\r\nab\r\n":              "string:ab",
		"$0\r\n\r\n":                "string:",
		"$-1\r\n":                   "boolean:false",
		"+OK\r\n":                   "{ok=string:OK}",
		"-ERR no\r\n":               "{err=string:ERR no}",
		"*3\r\n:1\r\n$-1\r\n*0\r\n": "{1=number:1 2=boolean:false 3={}}",
	} {
		got := eval(t, r, answer(reply), Call{Source: show})
		if want = fmt.Sprintf("$%d\r\n%s\r\n", len(want), want); got != want {
			t.Errorf("the Lua value of the reply %q\n got %q\nwant %q", reply, got, want)
		}
	}
}

func TestArgumentsReachTheHostUnchanged(t *testing.T) {
	r := New(Config{})
	var got [][]byte
	h := hostFunc(func(args [][]byte) []byte {
		got = nil
		for _, a := range args {
			got = append(got, bytes.Clone(a))
		}
		return []byte(":1\r\n")
	})
	long := bytes.Repeat([]byte("long"), 50_000)
	c := Call{
		Source: "redis.call('first', KEYS[1]) redis.call('set', KEYS[1], ARGV[1], ARGV[2], 7, '')",
		Keys:   [][]byte{{0, '\r', '\n', 0xff}}, Args: [][]byte{long, {}},
	}
	for range 2 {
		eval(t, r, h, c)
		if want := [][]byte{[]byte("set"), c.Keys[0], long, {}, []byte("7"), {}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("the host received %.200q, want the arguments unchanged", got)
		}
	}
}

func TestRedisLogWritesToTheLog(t *testing.T) {
	var out bytes.Buffer
	r := New(Config{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	run(t, r, "redis.log(redis.LOG_WARNING, 'hot', 1) redis.log(redis.LOG_DEBUG, 'cold')")
	if text := out.String(); !strings.Contains(text, `level=WARN msg=redis.log message="hot 1"`) || strings.Contains(text, "cold") {
		t.Errorf("redis.log wrote %q, want one WARN line", text)
	}
}

func TestScriptYields(t *testing.T) {
	r := New(Config{})
	for source, least := range map[string]int{"for i = 1, 10000 do end": 10, "return string.rep('x', 1000000)": 1, "return 1": 0} {
		gave := 0
		var w resp.Writer
		if err := r.Run(context.Background(), Call{Source: source, Yield: func() { gave++ }}, echo, &w); err != nil {
			t.Fatal(err)
		}
		if gave < least || least == 0 && gave > 0 {
			t.Errorf("%s: Run called Yield %d times, want at least %d, and never if that is 0", source, gave, least)
		}
	}
}

func TestParallelScriptsAreIsolated(t *testing.T) {
	r := New(Config{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 200 {
				var w resp.Writer
				c := Call{Source: "local v = redis.call('echo', KEYS[1]) return v .. ARGV[1] .. #KEYS"}
				c.Keys, c.Args = [][]byte{fmt.Append(nil, i)}, [][]byte{[]byte("-")}
				want := fmt.Sprintf("%d-1", i)
				want = fmt.Sprintf("$%d\r\n%s\r\n", len(want), want)
				if err := r.Run(context.Background(), c, echo, &w); err != nil || string(w.Bytes()) != want {
					t.Errorf("one of the parallel scripts replied %q, %v; want its own arguments", w.Bytes(), err)
				}
			}
		})
	}
	all.Wait()
}

func TestShebangIsReadAsInRedis(t *testing.T) {
	r := New(Config{})
	const want = "-ERR a script with a first line #! is not served, because flags of scripts have no effect here\r\n"
	expect(t, r, "#!lua\nreturn 1", want)
	expect(t, r, "#!lua flags=no-writes\nreturn 1", want)
	if _, err := r.Load("#!foo\nreturn 1"); !errors.As(err, new(Error)) {
		t.Errorf("Load of an unknown shebang: %v; want an Error", err)
	}
}
