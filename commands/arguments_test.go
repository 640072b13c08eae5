package commands

import (
	"strings"
	"testing"
)

func TestBadArgumentsAreNamedAndChangeNothing(t *testing.T) {
	const (
		ttl        = "ERR ttl is not an integer or out of range: 1 to 86400000 milliseconds"
		transition = "ERR TRANSITION is not an integer or out of range: 0 to 86400000 milliseconds"
		wait       = "ERR WAIT is not an integer or out of range: 0 to 9007199254740992 milliseconds, 0 = no limit"
		token      = "ERR TOKEN is not an integer or out of range: 1 to 9223372036854775807"
		count      = "ERR COUNT is not an integer or out of range: 1 to 10000"
		via        = " VIA wwwwwwwwwwwwwwww"
		waiter     = "ERR invalid waiter: it must have 16 to 64 visible ASCII characters"
		request    = "ERR REQUEST is not an integer or out of range: 1 to 9223372036854775807"
		since      = "ERR SINCE is not an integer or out of range: 0 to 9223372036854775807"
	)
	arity := func(name string) string { return "ERR wrong number of arguments for '" + name + "' command" }
	twice := func(o string) string { return "ERR syntax error: option '" + o + "' given twice" }
	needs := func(o string) string { return "ERR syntax error: option '" + o + "' needs a value" }
	unknown := func(o string) string { return "ERR syntax error: unknown option '" + o + "'" }

	s := newSite(t, Config{})
	p := s.dial()
	for _, tt := range []struct{ command, err string }{
		{"SIMBA.ACQUIRE", arity("simba.acquire")},
		{"SIMBA.ACQUIRE m c", arity("simba.acquire")},
		{`SIMBA.ACQUIRE "" c 1`, "ERR invalid mutex: it is empty"},
		{`SIMBA.ACQUIRE "a b" c 1`, "ERR invalid mutex: it must not contain white space or control characters"},
		{`SIMBA.ACQUIRE a{b c 1`, "ERR invalid mutex: it must not contain '{' or '}'"},
		{`SIMBA.ACQUIRE "a\xff" c 1`, "ERR invalid mutex: it is not valid UTF-8"},
		{"SIMBA.ACQUIRE " + strings.Repeat("m", 256) + " c 1", "ERR invalid mutex: it has 256 bytes, at most 255 are allowed"},
		{`SIMBA.ACQUIRE m "" 1`, "ERR invalid contender: it is empty"},
		{`SIMBA.ACQUIRE m a@@b 1`, "ERR invalid contender: it must not contain '@@'"},
		{"SIMBA.ACQUIRE m " + strings.Repeat("c", 129) + " 1", "ERR invalid contender: it has 129 bytes, at most 128 are allowed"},
		{"SIMBA.ACQUIRE m c x", ttl},
		{"SIMBA.ACQUIRE m c 0", ttl},
		{"SIMBA.ACQUIRE m c -1", ttl},
		{"SIMBA.ACQUIRE m c 01", ttl},
		{"SIMBA.ACQUIRE m c +1", ttl},
		{"SIMBA.ACQUIRE m c 1.5", ttl},
		{`SIMBA.ACQUIRE m c " 1"`, ttl},
		{`SIMBA.ACQUIRE m c ""`, ttl},
		{"SIMBA.ACQUIRE m c 86400001", ttl},
		{"SIMBA.ACQUIRE m c 18446744073709551617", ttl},
		{"SIMBA.ACQUIRE m c 9223372036854775808", ttl},
		{"SIMBA.ACQUIRE m c 1 TRANSITION", needs("TRANSITION")},
		{"SIMBA.ACQUIRE m c 1 TRANSITION x", transition},
		{"SIMBA.ACQUIRE m c 1 TRANSITION -1", transition},
		{"SIMBA.ACQUIRE m c 1 TRANSITION 86400001", transition},
		{"SIMBA.ACQUIRE m c 1 TRANSITION 1 transition 1", twice("TRANSITION")},
		{"SIMBA.ACQUIRE m c 1 WAIT", needs("WAIT")},
		{"SIMBA.ACQUIRE m c 1 WAIT x", wait},
		{"SIMBA.ACQUIRE m c 1 WAIT -1", wait},
		{"SIMBA.ACQUIRE m c 1 WAIT 9007199254740993", wait},
		{"SIMBA.ACQUIRE m c 1 WAIT 1 WAIT 1", twice("WAIT")},
		{"SIMBA.ACQUIRE m c 1 WAIT 1 NOQUEUE", "ERR syntax error: WAIT and NOQUEUE exclude each other"},
		{"SIMBA.ACQUIRE m c 1 NOQUEUE NOQUEUE", twice("NOQUEUE")},
		{"SIMBA.ACQUIRE m c 1 SESSION SESSION", twice("SESSION")},
		{"SIMBA.ACQUIRE m c 1 TOKEN 1", unknown("TOKEN")},
		{"SIMBA.ACQUIRE m c 1 nonsense", unknown("nonsense")},
		{"SIMBA.ACQUIRE m c 1 " + strings.Repeat("x", 200), unknown(strings.Repeat("x", 128))},

		{"SIMBA.ACQUIRE m c 1 WAIT 0 VIA", needs("VIA")},
		{"SIMBA.ACQUIRE m c 1 WAIT 0 VIA " + strings.Repeat("w", 15) + " REQUEST 1", waiter},
		{"SIMBA.ACQUIRE m c 1 WAIT 0 VIA " + strings.Repeat("w", 65) + " REQUEST 1", waiter},
		{`SIMBA.ACQUIRE m c 1 WAIT 0 VIA "wwwwwwwwwww wwwwwwww" REQUEST 1`, waiter},
		{"SIMBA.ACQUIRE m c 1 WAIT 0" + via + " REQUEST", needs("REQUEST")},
		{"SIMBA.ACQUIRE m c 1 WAIT 0" + via + " REQUEST 0", request},
		{"SIMBA.ACQUIRE m c 1 WAIT 0" + via + " REQUEST 9223372036854775808", request},
		{"SIMBA.ACQUIRE m c 1 WAIT 0" + via, needs("VIA")},
		{"SIMBA.ACQUIRE m c 1 WAIT 0" + via + " TRANSITION 1 REQUEST 1", "ERR syntax error: VIA needs REQUEST"},
		{"SIMBA.ACQUIRE m c 1 WAIT 0 REQUEST 1", unknown("REQUEST")},
		{"SIMBA.ACQUIRE m c 1" + via + " REQUEST 1", "ERR syntax error: VIA needs WAIT, and excludes SESSION"},
		{"SIMBA.ACQUIRE m c 1 NOQUEUE" + via + " REQUEST 1", "ERR syntax error: VIA needs WAIT, and excludes SESSION"},
		{"SIMBA.ACQUIRE m c 1 TRANSITION 1 WAIT 0 SESSION" + via + " REQUEST 1", "ERR syntax error: VIA needs WAIT, and excludes SESSION"},

		{"SIMBA.NEXT wwwwwwwwwwwwwwww", arity("simba.next")},
		{"SIMBA.NEXT w 1", waiter},
		{"SIMBA.NEXT wwwwwwwwwwwwwwww x", "ERR ms is not an integer or out of range: 0 to 60000 milliseconds"},
		{"SIMBA.NEXT wwwwwwwwwwwwwwww 60001", "ERR ms is not an integer or out of range: 0 to 60000 milliseconds"},

		{"SIMBA.GUARD m c", arity("simba.guard")},
		{"SIMBA.GUARD m{ c 1", "ERR invalid mutex: it must not contain '{' or '}'"},
		{"SIMBA.GUARD m @@ 1", "ERR invalid contender: it must not contain '@@'"},
		{"SIMBA.GUARD m c 0", ttl},
		{"SIMBA.GUARD m c 1 TRANSITION x", transition},
		{"SIMBA.GUARD m c 1 TRANSITION 1 TRANSITION 2", twice("TRANSITION")},
		{"SIMBA.GUARD m c 1 TOKEN", needs("TOKEN")},
		{"SIMBA.GUARD m c 1 TOKEN 0", token},
		{"SIMBA.GUARD m c 1 TOKEN x", token},
		{"SIMBA.GUARD m c 1 TOKEN 9223372036854775808", token},
		{"SIMBA.GUARD m c 1 TOKEN 1 TOKEN 1", twice("TOKEN")},
		{"SIMBA.GUARD m c 1 WAIT 1", unknown("WAIT")},

		{"SIMBA.RELEASE m", arity("simba.release")},
		{`SIMBA.RELEASE "" c`, "ERR invalid mutex: it is empty"},
		{`SIMBA.RELEASE m "a b"`, "ERR invalid contender: it must not contain white space or control characters"},
		{"SIMBA.RELEASE m c TOKEN", needs("TOKEN")},
		{"SIMBA.RELEASE m c TOKEN 0", token},
		{"SIMBA.RELEASE m c TOKEN 1 TOKEN 2", twice("TOKEN")},
		{"SIMBA.RELEASE m c x", unknown("x")},
		{"SIMBA.RELEASE m c" + via, needs("VIA")},
		{"SIMBA.RELEASE m c REQUEST 1", unknown("REQUEST")},
		{"SIMBA.RELEASE m c TOKEN 1" + via + " REQUEST 1", "ERR syntax error: TOKEN and VIA exclude each other"},

		{"SIMBA.OWNER", arity("simba.owner")},
		{"SIMBA.OWNER m n", arity("simba.owner")},
		{"SIMBA.OWNER }", "ERR invalid mutex: it must not contain '{' or '}'"},

		{"SIMBA.QUEUE", arity("simba.queue")},
		{`SIMBA.QUEUE ""`, "ERR invalid mutex: it is empty"},
		{"SIMBA.QUEUE m COUNT", needs("COUNT")},
		{"SIMBA.QUEUE m COUNT 0", count},
		{"SIMBA.QUEUE m COUNT 10001", count},
		{"SIMBA.QUEUE m COUNT 1 COUNT 1", twice("COUNT")},
		{"SIMBA.QUEUE m x", unknown("x")},

		{"SIMBA.SCAN", arity("simba.scan")},
		{"SIMBA.SCAN x", "ERR invalid cursor"},
		{"SIMBA.SCAN -1", "ERR invalid cursor"},
		{"SIMBA.SCAN 18446744073709551616", "ERR invalid cursor"},
		{"SIMBA.SCAN 0 MATCH", needs("MATCH")},
		{"SIMBA.SCAN 0 MATCH a MATCH b", twice("MATCH")},
		{"SIMBA.SCAN 0 COUNT x", count},
		{"SIMBA.SCAN 0 STATE", needs("STATE")},
		{"SIMBA.SCAN 0 STATE free", "ERR STATE must be held or contended, not 'free'"},
		{"SIMBA.SCAN 0 STATE held STATE held", twice("STATE")},
		{"SIMBA.SCAN 0 TYPE string", unknown("TYPE")},

		{"SIMBA.CHECK m", arity("simba.check")},
		{"SIMBA.CHECK m 1 2", arity("simba.check")},
		{"SIMBA.CHECK m{} 1", "ERR invalid mutex: it must not contain '{' or '}'"},
		{"SIMBA.CHECK m x", "ERR token is not an integer or out of range: 0 to 9223372036854775807"},
		{"SIMBA.CHECK m -1", "ERR token is not an integer or out of range: 0 to 9223372036854775807"},

		{"SIMBA.BREAK", arity("simba.break")},
		{`SIMBA.BREAK ""`, "ERR invalid mutex: it is empty"},
		{"SIMBA.BREAK m REASON", needs("REASON")},
		{"SIMBA.BREAK m REASON a REASON b", twice("REASON")},
		{"SIMBA.BREAK m REASON " + strings.Repeat("r", 257), "ERR REASON has 257 bytes, at most 256 are allowed"},
		{"SIMBA.BREAK m why", unknown("why")},

		{"SIMBA.HISTORY", arity("simba.history")},
		{`SIMBA.HISTORY ""`, "ERR invalid mutex: it is empty"},
		{"SIMBA.HISTORY m COUNT 10001", count},
		{"SIMBA.HISTORY m SINCE", needs("SINCE")},
		{"SIMBA.HISTORY m SINCE -1", since},
		{"SIMBA.HISTORY m SINCE x", since},
		{"SIMBA.HISTORY m SINCE 1 SINCE 1", twice("SINCE")},
		{"SIMBA.HISTORY m x", unknown("x")},

		{"SIMBA.HELP x", arity("simba.help")},
	} {
		p.expect(tt.command, failed(tt.err))
		if calls := s.backend.takeCalls(); len(calls) > 0 {
			t.Errorf("%s: the backend was called with %q, want no call", tt.command, calls)
		}
	}
}

func TestOptionsMayBeInAnyOrderAndCase(t *testing.T) {
	s := newSite(t, Config{})
	p := s.dial()
	for _, tt := range []struct{ command, calls string }{
		{"simba.Acquire m c 1", "acquire m c 1ms+0s noqueue=false session=false wait=false"},
		{"SIMBA.ACQUIRE m c 86400000 TRANSITION 86400000", "acquire m c 24h0m0s+24h0m0s noqueue=false session=false wait=false"},
		{"SIMBA.ACQUIRE m c 1 session noqueue Transition 0", "acquire m c 1ms+0s noqueue=true session=true wait=false"},
		{"SIMBA.ACQUIRE m c 1 wait 9007199254740992 TRANSITION 5 SESSION", "acquire m c 1ms+5ms noqueue=false session=true wait=true"},
		{"SIMBA.ACQUIRE é ü 1 WAIT 0", "acquire é ü 1ms+0s noqueue=false session=false wait=true"},
		{"SIMBA.GUARD m c 7 token 9223372036854775807 transition 3", "guard m c 7ms+3ms token=9223372036854775807"},
		{"SIMBA.RELEASE m c Token 4", `release m c token=4 session=false reason=""`},
		{"SIMBA.OWNER m", "owner m"},
		{"SIMBA.QUEUE m", "queue m 10000"},
		{"SIMBA.QUEUE m count 3", "queue m 3"},
		{"SIMBA.SCAN 18446744073709551615", "scan 18446744073709551615 count=10 held=false contended=false match=false"},
		{"SIMBA.SCAN 0 state HELD count 10000 match *", "scan 0 count=10000 held=true contended=false match=true"},
		{"SIMBA.SCAN 0 STATE contended", "scan 0 count=10 held=false contended=true match=false"},
		{"SIMBA.CHECK m 12", "check m 12"},
		{`SIMBA.BREAK m reason "he is asleep"`, `break m "he is asleep"`},
		{"SIMBA.BREAK m", `break m ""`},
		{"SIMBA.HISTORY m", "owner m; history m count=10 since=0"},
		{"SIMBA.HISTORY m since 0", "owner m; history m count=10000 since=0"},
		{"SIMBA.HISTORY m since 12 count 5", "history m count=5 since=12"},
	} {
		if got := p.do(tt.command); got[0] == '-' {
			t.Errorf("%s replied %s, want no error", tt.command, got)
		}
		if calls := strings.Join(s.backend.takeCalls(), "; "); calls != tt.calls {
			t.Errorf("%s:\ncalls %q\n want %q", tt.command, calls, tt.calls)
		}
	}
}
