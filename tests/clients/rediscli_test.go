package clients

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// cli runs redis-cli to its end, and returns what a terminal would show.
func cli(t testing.TB, s *simbatest.Server, args ...string) string {
	t.Helper()
	return simbatest.Output(t, "redis-cli", append([]string{"-p", s.Port()}, args...)...)
}

// cliRun starts a redis-cli, and does not wait for its end.
func cliRun(t testing.TB, s *simbatest.Server, args ...string) *simbatest.Process {
	t.Helper()
	return simbatest.Run(t, "redis-cli", append([]string{"-p", s.Port()}, args...)...)
}

// cliFields reads the record that redis-cli shows, in either protocol:
//
//	1# "status" => "acquired"         1) "status"
//	                                  2) "acquired"
func cliFields(t testing.TB, shown string) map[string]string {
	t.Helper()
	var values []string
	for _, match := range regexp.MustCompile(`(?m)^ *\d+[#)] (.*)$`).FindAllStringSubmatch(shown, -1) {
		values = append(values, strings.SplitN(match[1], " => ", 2)...)
	}
	if len(values)%2 != 0 {
		t.Fatalf("redis-cli shows no record:\n%s", shown)
	}
	r := make(map[string]string)
	for i := 0; i < len(values); i += 2 {
		r[unquote(values[i])] = unquote(values[i+1])
	}
	return r
}

func unquote(shown string) string {
	if s, err := strconv.Unquote(shown); err == nil {
		return s
	}
	return strings.TrimPrefix(shown, "(integer) ")
}

func TestLeaderIsElectedAndHandsOffInBothProtocols(t *testing.T) {
	simbatest.NeedRedisTools(t)
	for _, protocol := range []string{"-2", "-3"} {
		t.Run("RESP"+protocol[1:], func(t *testing.T) {
			// The window is long, since redis-cli may take seconds to start on a busy machine.
			s := simbatest.Start(t, "--handoff-window", simbatest.Patience.String())
			onlooker := cliRun(t, s, protocol, "SUBSCRIBE", "simba:{job}")
			onlooker.Wants(t, `\(integer\) 1`)
			own := cliRun(t, s, protocol, "SUBSCRIBE", "simba:{job}:b")
			own.Wants(t, `\(integer\) 1`)

			a := cliFields(t, cli(t, s, protocol, "SIMBA.ACQUIRE", "job", "a", "600000", "TRANSITION", "2000"))
			if a["status"] != "acquired" || a["owner"] != "a" || len(a["token"]) != 16 || a["ttl"] != "600000" || a["transition"] != "602000" || a["position"] != "0" {
				t.Errorf("ACQUIRE by a returns %v, want acquired with a token", a)
			}
			b := cliFields(t, cli(t, s, protocol, "SIMBA.ACQUIRE", "job", "b", "600000"))
			if b["status"] != "queued" || b["owner"] != "a" || b["token"] != a["token"] || b["position"] != "1" {
				t.Errorf("ACQUIRE by b returns %v, want queued at position 1", b)
			}
			c := cliRun(t, s, protocol, "SIMBA.ACQUIRE", "job", "c", "600000", "WAIT", "0")
			simbatest.AwaitBlocked(t, s.Addr, 1)

			if got := cli(t, s, protocol, "SIMBA.RELEASE", "job", "a"); got != "(integer) 1" {
				t.Errorf("RELEASE by a shows %s, want 1", got)
			}
			own.Wants(t, `"released@@a"`)
			b = cliFields(t, cli(t, s, protocol, "SIMBA.ACQUIRE", "job", "b", "600000"))
			if b["status"] != "acquired" || b["token"] <= a["token"] {
				t.Errorf("ACQUIRE by b after its notice returns %v, want acquired with a larger token", b)
			}
			if got := cli(t, s, protocol, "SIMBA.RELEASE", "job", "b"); got != "(integer) 1" {
				t.Errorf("RELEASE by b shows %s, want 1", got)
			}
			c.Wait(t)
			if got := cliFields(t, c.Output()); got["status"] != "acquired" || got["token"] <= b["token"] {
				t.Errorf("the blocked ACQUIRE by c returns %v, want acquired with a larger token", got)
			}
			for _, contender := range []string{"a", "b", "c"} {
				onlooker.Wants(t, `"acquired@@`+contender+`"`)
			}
		})
	}
}

func TestRedisCliModesWork(t *testing.T) {
	simbatest.NeedRedisTools(t)
	s := simbatest.Start(t)
	if got := cli(t, s, "SIMBA.ACQUIRE", "job", "a", "600000"); !strings.Contains(got, "acquired") {
		t.Fatalf("redis-cli shows no grant: %s", got)
	}
	t.Run("scan", func(t *testing.T) {
		if got := cli(t, s, "--scan"); strings.TrimSpace(got) != `"job"` {
			t.Errorf("redis-cli --scan prints %q, want only job", got)
		}
	})
	t.Run("stat", func(t *testing.T) {
		cliRun(t, s, "--stat", "-i", "0.001").Wants(t, `^1 +\S+ +\d+ +0 +\d+ \(\+\d+\)`)
	})
	t.Run("latency", func(t *testing.T) {
		cliRun(t, s, "--latency", "--raw").Wants(t, `^\d+ \d+ \d+\.\d+ [1-9]\d*$`)
	})
	t.Run("bigkeys", func(t *testing.T) {
		if got := cli(t, s, "--bigkeys"); !strings.Contains(got, "Sampled 1 keys in the keyspace") {
			t.Errorf("redis-cli --bigkeys prints\n%s", got)
		}
	})
	t.Run("monitor", func(t *testing.T) {
		monitor := cliRun(t, s, "MONITOR")
		monitor.Wants(t, "^OK")
		cli(t, s, "SIMBA.CHECK", "job", "1")
		monitor.Wants(t, `^\d+\.\d{6} \[0 127\.0\.0\.1:\d+\] "SIMBA.CHECK" "job" "1"`)
	})
}

func TestRedisBenchmarkLineWorks(t *testing.T) {
	simbatest.NeedRedisTools(t)
	s := simbatest.Start(t)
	out := simbatest.Output(t, "redis-benchmark", "-p", s.Port(), "-n", "20000", "-r", "100000", "-P", "16", "-q",
		"SIMBA.ACQUIRE", "m:__rand_int__", "c", "60000")
	if !regexp.MustCompile(`[1-9][\d.]* requests per second`).MatchString(out) || strings.Contains(out, "rror") {
		t.Fatalf("redis-benchmark prints no rate, or an error:\n%s", out)
	}
	t.Log(out[strings.LastIndex(out, "\r")+1:])
}
