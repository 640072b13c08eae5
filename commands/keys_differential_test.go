package commands

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// These tests send commands on keys to a real Redis and to a server with the embedded engine, and
// compare the replies byte by byte. The sequences avoid the known differences, or the function same
// accepts them. In this list, "here" means this server and "there" means Redis:
//
//	simba:{m} and m                are one key here, two keys there
//	simba:{m}:contender            belongs to the mutex m here, is a key of its own there
//	DEL of a queue                 keeps the waiters here
//	a sorted set that is no queue  is refused here
//	a lock with a queue's name     is refused here
//	FLUSHALL                       keeps the waiters here
//	members with the same score    are in order of arrival here, in order of their bytes there
//	KEYS, SCAN, DBSIZE in an EXEC  do not see the changes of the EXEC here
//	a NUL in an error's text       ends the text there
//	an expiry in over 100 years    is refused here
//	the order of KEYS, SCAN        is that of a hash table, which differs
//	the order of a large hash      is that of a hash table there (over 512 fields or 64 bytes),
//	                               always the order of setting here
//	TTL and similar                differ a little, because each server reads its own clock
//	a script that does not compile gets the error of another implementation of Lua here
const differentialSequences = 250

func TestLockKeysReplyAsRedis(t *testing.T) {
	compareSequences(t, func(r *rand.Rand) []string {
		return newGenerator(r, plainKeys).sequence(lockTemplates)
	})
}

func TestAQueueRepliesAsASortedSetOfRedis(t *testing.T) {
	compareSequences(t, func(r *rand.Rand) []string {
		return append([]string{"SET q holder"}, newGenerator(r, []string{"simba:{q}:contender"}).sequence(queueTemplates)...)
	})
}

func compareSequences(t *testing.T, sequence func(*rand.Rand) []string) {
	t.Helper()
	redis := realRedis(t)
	for proto := 2; proto <= 3; proto++ {
		ours, theirs := newEngineSite(t).dial(), redis(t)
		both := func(command string) (got, want string) { return ours.do(command), theirs.do(command) }
		ours.expect("CONFIG SET flush-held-locks yes", ok)
		hello := fmt.Sprint("HELLO ", proto)
		both(hello)
		failures := 0
		for seed := range uint64(differentialSequences) {
			commands := sequence(rand.New(rand.NewPCG(seed, uint64(proto))))
			for i, command := range commands {
				got, want := both(command)
				if same(command, got, want) {
					continue
				}
				t.Errorf("RESP%d, sequence %d: %s\n  ours %q\ntheirs %q\n after %s", proto, seed, command, got, want, strings.Join(commands[max(0, i-8):i], "; "))
				failures++
				break // the next replies depend on this one
			}
			if failures == 20 {
				t.Fatal("20 sequences differ: giving up")
			}
			both("DISCARD")
			both("UNWATCH")
			both("ZREM simba:{q}:contender a b c d e \"x y\"")
			ours.expect("FLUSHALL", ok)
			theirs.expect("FLUSHALL", ok)
		}
	}
}

// same reports whether two replies to a command are equal, or differ only in a known way.
func same(command, got, want string) bool {
	if got == want {
		return true
	}
	name, rest, _ := strings.Cut(strings.ToUpper(command), " ")
	if name == "EVAL" && strings.HasPrefix(rest, `"RETURN REDIS.`) {
		name, _, _ = strings.Cut(rest[strings.LastIndex(rest, `)" 0 `)+len(`)" 0 `):], " ")
	}
	switch name {
	case "EXEC": // an array of replies to any commands
		return sameLeaves(got, want)
	case "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME":
		return sameTime(got, want)
	case "KEYS", "SCAN":
		return sortedLines(got) == sortedLines(want)
	}
	return false
}

// sameTime reports whether both replies are integers that differ by at most 60 s. The generated
// expiries differ by at least 1,000 s. The size of a number shows whether it is in seconds or in
// milliseconds.
func sameTime(got, want string) bool {
	a, errA := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(got, ":")))
	b, errB := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(want, ":")))
	slack := 60
	if b > 1e6 && b < 1e9 || b > 1e10 {
		slack = 60_000
	}
	return errA == nil && errB == nil && a > 0 && b > 0 && max(a, b)-min(a, b) <= slack
}

func sortedLines(reply string) string {
	lines := strings.Split(reply, "\r\n")
	slices.Sort(lines)
	return strings.Join(lines, "\r\n")
}

// sameLeaves compares the lines of two replies to EXEC in any order. Lines may differ as sameTime
// allows.
func sameLeaves(got, want string) bool {
	a, b := strings.Split(sortedLines(got), "\r\n"), strings.Split(sortedLines(want), "\r\n")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !sameTime(a[i], b[i]) {
			return false
		}
	}
	return true
}

type generator struct {
	*rand.Rand
	keys   []string
	expiry []int // different expiries in units of 1,000 s; the first is used next
	scores []string
}

var plainKeys = []string{"orders", "b", "a:b", `""`, `"bin\x00\xff\r\n"`, "simba:{}"}

func newGenerator(r *rand.Rand, keys []string) *generator {
	scores := []string{"inf", "-inf", "0", "1e3", "-1", "1.5", "0.1", "1700000000", "1700000000.123", "-1e-7", "1e300", "123456789012345678"}
	for n := range 140 {
		scores = append(scores, strconv.FormatFloat(float64(n)*0.37+2, 'g', -1, 64))
	}
	r.Shuffle(len(scores), func(i, j int) { scores[i], scores[j] = scores[j], scores[i] })
	return &generator{r, keys, r.Perm(500), scores}
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// seconds returns an expiry that differs by at least 1,000 s from all others of the sequence, or an
// invalid one.
func (g *generator) seconds(base, unit int) string {
	if g.IntN(8) == 0 {
		return g.pick("0", "-1", "x", "1.5", `""`, "9223372036854775807", "9223372036854775808", "-9223372036854775808", `" 5"`)
	}
	n := g.expiry[0]
	g.expiry = append(g.expiry[1:], n)
	return strconv.Itoa((base + 100_000 + 1000*n) * unit)
}

// score returns a score that no other member of the sequence has, or an invalid one.
func (g *generator) score() string {
	if g.IntN(12) == 0 {
		return g.pick("x", "nan", `""`, "1.5x", `" 1"`)
	}
	s := g.scores[0]
	g.scores = g.scores[1:]
	return s
}

// year2090 is a time in Unix seconds. It is later than all relative expiries, but less than 100
// years ahead.
const year2090 = 3_800_000_000

func (g *generator) expand(template string) string {
	var out []string
	for word := range strings.SplitSeq(template, " ") {
		switch word {
		case "{k}":
			word = g.pick(g.keys...)
		case "{v}":
			word = g.pick("w1", "w2", "w1", `""`, `"a b"`, `"\x00\xff\r\n"`, "10", "-3", "9223372036854775807", "-9223372036854775808", `" 10"`, "010", "1.5", strings.Repeat("x", 70))
		case "{f}":
			word = g.pick("f", "g", "h", "n", `""`, `"\x00"`)
		case "{w}":
			word = g.pick("w1", "w2", `""`, `"\xff\r\n"`, "10", "-7", "9223372036854775807", "1.5")
		case "{i}":
			word = g.pick("1", "2", "-1", "0", "100", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "x", "1.0", `""`, "+1", "01")
		case "{ex}":
			word = g.seconds(0, 1)
		case "{px}":
			word = g.seconds(0, 1000)
		case "{exat}":
			word = g.at(1)
		case "{pxat}":
			word = g.at(1000)
		case "{set}":
			word = g.some("NX", "XX", "GET", "KEEPTTL", "EX "+g.seconds(0, 1), "PX "+g.seconds(0, 1000), "EXAT "+g.at(1), "PXAT "+g.at(1000), "nonsense")
		case "{zopt}":
			word = g.some("NX")
		case "{s}":
			word = g.score()
		case "{m}":
			word = g.pick("a", "b", "c", "d", "e", `"x y"`)
		case "{r}":
			word = g.pick("0", "1", "2", "-1", "-2", "-100", "100", "0", "-1", "x")
		}
		if word != "" {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// at returns a time for an expiry: a future one, a past one, or an invalid one.
func (g *generator) at(unit int) string {
	if g.IntN(6) == 0 {
		return g.pick("1", "1000", "0", "-1", "x", "9223372036854775808")
	}
	n := g.expiry[0]
	g.expiry = append(g.expiry[1:], n)
	return strconv.Itoa((year2090 + 1000*n) * unit)
}

func (g *generator) some(options ...string) string {
	var out []string
	for range []int{0, 1, 1, 1, 1, 2, 2, 3}[g.IntN(8)] {
		out = append(out, g.pick(options...))
	}
	return strings.Join(out, " ")
}

func (g *generator) sequence(templates []string) []string {
	var commands []string
	multi := false
	for range 20 + g.IntN(21) {
		template := g.pick(templates...)
		for multi && ofAllKeys(template) {
			template = g.pick(templates...)
		}
		if template == "DBSIZE" { // Redis counts expired keys until a command reads them
			commands = append(commands, "EXISTS "+strings.Join(g.keys, " "))
		}
		commands = append(commands, g.command(template))
		switch template {
		case "MULTI", "EXEC", "DISCARD":
			multi = template == "MULTI"
		}
	}
	return commands
}

func ofAllKeys(template string) bool {
	name, _, _ := strings.Cut(template, " ")
	return name == "KEYS" || name == "SCAN" || name == "DBSIZE"
}

func (g *generator) command(template string) string {
	command := g.expand(template)
	switch g.IntN(30) {
	case 0: // one argument too few
		if i := strings.LastIndexByte(command, ' '); i > 0 && !strings.HasSuffix(command, `"`) {
			command = command[:i]
		}
	case 1:
		command += " " + g.keys[0]
	case 2:
		command += " x"
	}
	name, rest, _ := strings.Cut(command, " ")
	switch g.IntN(12) {
	case 0:
		name = strings.ToLower(name)
	case 1, 2: // let a script call the command
		switch name {
		case "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH":
		default:
			name = `EVAL "return redis.` + g.pick("pcall", "call") + `(unpack(ARGV))" 0 ` + name
		}
	}
	return strings.TrimSpace(name + " " + rest)
}

// The templates of commands. The most important ones occur several times.
var lockTemplates = []string{
	"SET {k} {v} {set}", "SET {k} {v} {set}", "SET {k} {v} {set}", "SET {k} {v} {set}", "SET {k} {v} NX PX {px}", "SET {k} {v} NX PX {px}", "SET {k} {v} XX {set}", "SET {k} {v} GET {set}",
	"SETNX {k} {v}", "SETEX {k} {ex} {v}", "PSETEX {k} {px} {v}", "GETSET {k} {v}", "GET {k}", "GET {k}", "GET {k}", "MGET {k} {k} {k}", "STRLEN {k}",
	"MSETNX {k} {v}", "MSETNX {k} {v} {k} {v}",
	"DEL {k}", "DEL {k} {k}", "UNLINK {k} {k} {k}", "EXISTS {k} {k}", "TYPE {k}", "TYPE {k}",
	"EXPIRE {k} {ex}", "PEXPIRE {k} {px}", "EXPIREAT {k} {exat}", "PEXPIREAT {k} {pxat}", "PERSIST {k}", "PERSIST {k}",
	"TTL {k}", "PTTL {k}", "PTTL {k}", "EXPIRETIME {k}", "PEXPIRETIME {k}", "PEXPIRETIME {k}",
	"KEYS *", "KEYS {k}", "KEYS ?", "KEYS [a-o]*", "SCAN 0 COUNT 1000", "SCAN 0 MATCH *b* COUNT 1000", "DBSIZE", "DBSIZE",
	"INCR {k}", "DECR {k}", "INCRBY {k} {i}", "DECRBY {k} {i}", "INCR {k}",
	"HSET {k} {f} {w}", "HSET {k} {f} {w}", "HSET {k} {f} {w} {f} {w}", "HGET {k} {f}", "HGET {k} {f}", "HGETALL {k}", "HGETALL {k}",
	"HDEL {k} {f}", "HDEL {k} {f} {f} {f} {f}", "HEXISTS {k} {f}", "HINCRBY {k} {f} {i}", "HINCRBY {k} {f} {i}", "HLEN {k}", "HKEYS {k}",
	"MULTI", "EXEC", "EXEC", "DISCARD", "WATCH {k}", "WATCH {k} {k}", "UNWATCH",
	// The key is missing, or of the wrong type.
	"ZCARD {k}", "ZSCORE {k} {m}", "ZRANGE {k} 0 -1", "ZREM {k} {m}",
	"ECHO {v}", "SELECT 0", "PING", "PUBLISH {k} {v}",
}

var queueTemplates = []string{
	"ZADD {k} {zopt} {s} {m}", "ZADD {k} {zopt} {s} {m}", "ZADD {k} {zopt} {s} {m} {s} {m}", "ZADD {k} NX {s} {m}", "ZADD {k} {s} {m} {s} {m} {s} {m}",
	"ZREM {k} {m}", "ZREM {k} {m} {m}", "ZRANGE {k} {r} {r}", "ZRANGE {k} {r} {r} WITHSCORES", "ZRANGE {k} 0 -1",
	"ZREVRANGE {k} {r} {r}", "ZREVRANGE {k} -1 -1", "ZREVRANGE {k} {r} {r} WITHSCORES", "ZSCORE {k} {m}", "ZSCORE {k} {m}", "ZCARD {k}", "ZCARD {k}",
	"EXISTS {k}", "TYPE {k}", "TTL {k}", "PTTL {k}",
	"GET {k}", "HGET {k} f", "HLEN {k}", "STRLEN {k}", "MGET {k}",
	"MULTI", "EXEC", "EXEC", "WATCH {k}", "GET q", "TYPE q",
}
