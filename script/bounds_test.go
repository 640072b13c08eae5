package script

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

// bounded runs a script that must exceed a bound, and returns the reply or the error.
func bounded(t *testing.T, r *Runner, source string) string {
	t.Helper()
	var w resp.Writer
	err := r.Run(t.Context(), Call{Source: source}, echo, &w)
	if err == nil {
		return string(w.Bytes())
	}
	return err.Error()
}

func TestScriptsThatExceedABoundFail(t *testing.T) {
	small, large := New(Config{Memory: 16 << 20}), New(Config{})
	for name, c := range map[string]struct{ source, want string }{
		"strings":            {`local t={} for i=1,1e9 do t[i]=string.rep('x',10000)..i end`, "out of memory"},
		"tables":             {`local t for i=1,1e9 do t={t,{},{}} end`, "out of memory"},
		"sparse arrays":      {`local t={} for i=1,1e9 do t[i]={} t[i][16383]=1 end`, "out of memory"},
		"keys":               {`local t={} for i=1,1e9 do t['k'..i]=i end`, "out of memory"},
		"closures":           {`local t={} for i=1,1e9 do t[i]=function() return i end end`, "out of memory"},
		"doubling":           {`local s='x' while true do s=s..s end`, "string length overflow"},
		"many operands":      {`local s=string.rep('x',1e6) local t=s..s..s..s..s..s..s..s..s..s`, "string length overflow"},
		"rep":                {`return string.rep('x', 2e9)`, "string length overflow"},
		"rep of much":        {`return string.rep(string.rep('x',1e6), 2e9)`, "string length overflow"},
		"format":             {`return string.format('%99999999d', 1)`, "invalid format"},
		"format of much":     {`local s=string.rep('x',1e6) return string.format('%s%s', s, s)`, "string length overflow"},
		"table.concat":       {`local s=string.rep('x',1e6) return table.concat({s,s,s,s})`, "string length overflow"},
		"unpack":             {`return unpack({},1,1e9)`, "too many results to unpack"},
		"calls":              {`local function f() return 1+f() end return f()`, "stack overflow"},
		"calls by pcall":     {`local function f() return 1,pcall(f) end return select('#', f())`, ""},
		"calls by metatable": {`local t={} setmetatable(t,{__index=function(t,k) return t[k+1] end}) return t[1]`, "overflow"},
		"far insert":         {`table.insert({}, -2^31, 1)`, "position out of bounds"},
		"far length":         {`local t={} for i=1,16383 do t[i]=1 end for k=14,63 do t[2^k]=1 end t[-2^63]=1 t[0]=1 t[-1]=1 return #t`, ""},
		"functions":          {`return ` + strings.Repeat("#{function() end},", 3000) + `1`, "too many functions"},
		"wide reply":         {`local t={1,2,3,4,5,6,7,8} for i=1,30 do t={t,t,t,t} end return t`, "too long"},
		"registers":          {`local function f(...) return f(` + strings.Repeat("1,", 200) + `...) end return f()`, ""},
		"cyclic metatables":  {`local t={} setmetatable(t,{__index=t}) return t.x`, "too many recursions"},
	} {
		t.Run(name, func(t *testing.T) {
			r := small
			if name == "wide reply" { // the reply may take more memory than small allows
				r = large
			}
			if got := bounded(t, r, c.source); !strings.Contains(got, c.want) {
				t.Errorf("script %s\n got %.300q\nwant %q", c.source, got, c.want)
			}
			expect(t, r, `return {1,'a'..#'b'}`, "*2\r\n:1\r\n$2\r\na1\r\n")
		})
	}
}

func TestOversizedSourceIsRefused(t *testing.T) {
	r := New(Config{})
	const n = 300_000
	var different strings.Builder
	different.WriteString("local t={")
	for i := range 60_000 {
		different.WriteString("'" + shaOf(string(rune(i)))[:8] + "',")
	}
	different.WriteString("}")
	for name, source := range map[string]string{
		"brackets":  "return " + strings.Repeat("(", n),
		"tables":    "return " + strings.Repeat("{", n),
		"closed":    "return " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n),
		"short":     "return " + strings.Repeat("- ", 7000) + "1",
		"calls":     "f" + strings.Repeat("(f", n),
		"not":       "return " + strings.Repeat("not ", n) + "1",
		"minus":     "return " + strings.Repeat("- ", n) + "1",
		"power":     "return " + strings.Repeat("2^", n) + "1",
		"concat":    "return " + strings.Repeat("'a'..", n) + "1",
		"sum":       "return " + strings.Repeat("1+", n) + "1",
		"blocks":    strings.Repeat("do ", n),
		"functions": strings.Repeat("return function() ", n/4),
		"ifs":       strings.Repeat("if a then ", n/4),
		"elseifs":   "if a then " + strings.Repeat("elseif a then ", n/4) + "end",
		"calls()":   "f" + strings.Repeat("()", n),
		"index":     "return a" + strings.Repeat(".b", n),
		"constants": different.String(),
	} {
		t.Run(name, func(t *testing.T) {
			sha, err := r.Load(source)
			var e Error
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "ERR Error compiling script (new function): user_script:") {
				t.Fatalf("Load of an oversized script: %q, %.300v; want a compiler error", sha, err)
			}
		})
	}
	for name, source := range map[string]string{
		"long":         strings.Repeat("local function f(a,b) return {a..b, -a, #b, not a} end f(1,2)\n", 150),
		"a long table": "return {" + strings.Repeat("'x',", 50_000) + "}",
		"chains":       strings.Repeat("a=b..c a=-b\n", 10_000) + strings.Repeat("f(a..b)\n", 10_000),
	} {
		if _, err := r.Load(source); err != nil {
			t.Errorf("Load of the script %q: %v; want no error", name, err)
		}
	}
}

// spinning starts an endless script, and returns when the script runs.
func spinning(t *testing.T, r *Runner, ctx context.Context, source string) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	begun := make(chan struct{})
	h := hostFunc(func([][]byte) []byte { close(begun); return []byte("+OK\r\n") })
	go func() {
		var w resp.Writer
		ended <- r.Run(ctx, Call{Source: "redis.call('begin') " + source}, h, &w)
	}()
	<-begun
	return ended
}

var endless = map[string]string{
	"a loop": `while true do end`,
	"caught": `while true do pcall(function() while true do end end) end`,
	"concat": `local s=string.rep('x',5e5) while true do local t=s..s end`,
}

func TestEndlessScriptsCanBeKilled(t *testing.T) {
	for name, source := range endless {
		t.Run(name, func(t *testing.T) {
			r := New(Config{BusyAfter: func() time.Duration { return time.Nanosecond }})
			if err := r.Kill(); !errors.Is(err, ErrNotBusy) {
				t.Fatalf("Kill while no script runs: %v; want ErrNotBusy", err)
			}
			ended := spinning(t, r, t.Context(), source)
			for r.Kill() != nil {
				t.Log("not yet busy")
			}
			err := <-ended
			if err == nil || !strings.HasPrefix(err.Error(), "ERR Script killed by user with SCRIPT KILL... script: ") {
				t.Errorf("Run of the killed script returned %v, want the error of SCRIPT KILL", err)
			}
			expect(t, r, "return 1", ":1\r\n")
		})
	}
}

func TestScriptEndsWithItsContext(t *testing.T) {
	for name, source := range endless {
		t.Run(name, func(t *testing.T) {
			r := New(Config{})
			ctx, cancel := context.WithCancel(context.Background())
			ended := spinning(t, r, ctx, source)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v after its context ended, want context.Canceled", err)
			}
		})
	}
}

func TestRunFailsWithBusyIfAllSlotsAreBusy(t *testing.T) {
	var after time.Duration = time.Hour
	r := New(Config{BusyAfter: func() time.Duration { return after }})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended []chan error
	for range r.slots {
		ended = append(ended, spinning(t, r, ctx, `while true do end`))
	}
	impatient, giveUp := context.WithCancel(context.Background())
	giveUp()
	var w resp.Writer
	if err := r.Run(impatient, Call{Source: "return 1"}, echo, &w); !errors.Is(err, context.Canceled) {
		t.Errorf("Run whose context ends while it waits for a slot: %v; want context.Canceled", err)
	}
	after = time.Nanosecond
	if err := r.Run(context.Background(), Call{Source: "return 1"}, echo, &w); !errors.Is(err, ErrBusy) {
		t.Errorf("Run while all slots are busy: %v; want ErrBusy", err)
	}
	if err := r.Kill(); err != nil {
		t.Error(err)
	}
	for _, c := range ended {
		<-c
	}
	expect(t, r, "return 1", ":1\r\n")
}
