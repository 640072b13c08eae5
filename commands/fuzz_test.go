package commands

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

// The states of the connection on which FuzzCommand sends its command, as bits.
const (
	inRESP3 = 1 << iota
	inMulti
	inSubscription
	inScript
	unauthenticated
	states = 1 << iota
)

// FuzzCommand sends a command of the table with fuzzed arguments. The first inputs follow from the
// command's grammar. The reply must be one well-formed frame, except in the cases of checkReplies.
// A command that replies with an error must have changed nothing. The server must reply to the next
// PING.
func FuzzCommand(f *testing.F) {
	all := slices.Collect(newTable(families()).all())
	r := rand.New(rand.NewPCG(1, 2))
	for i, e := range all {
		for state := range 3 {
			f.Add(uint16(i), uint8(state), joinArguments(argumentsOf(r, parseUsage(e.args))))
		}
		f.Add(uint16(i), uint8(r.IntN(states)), joinArguments(argumentsOf(r, parseUsage(e.args))))
	}
	f.Fuzz(func(t *testing.T, which uint16, state uint8, joined []byte) {
		e := all[int(which)%len(all)]
		args := append([][]byte(nil), bytes.Fields([]byte(strings.ReplaceAll(e.full, "|", " ")))...)
		args = append(args, splitArguments(joined)...)
		if len(args) > 64 || len(joined) > 32<<10 {
			return // FuzzReader of resp tests the limits of the reader
		}
		synctest.Test(t, func(t *testing.T) { fuzzCommand(t, e, int(state)%states, args) })
	})
}

const argumentMark = "\x1e"

func joinArguments(args []string) []byte { return []byte(strings.Join(args, argumentMark)) }

func splitArguments(joined []byte) [][]byte {
	if len(joined) == 0 {
		return nil
	}
	return bytes.Split(joined, []byte(argumentMark))
}

// Arguments of each kind: valid ones, invalid ones, and ones at the limits.
var (
	fuzzNumbers = []string{"0", "1", "-1", "2", "3", "100", "5000", "86400000", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
		"18446744073709551617", "01", "+1", " 1", "1.5", "1e3", "inf", "-inf", "nan", "", "x", "1\x00"}
	fuzzNames = []string{"held", "orders", "hash", "free", "w1", "w2", "p1", "f", "simba:{held}", "simba:{held}:contender", "simba:{free}:contender",
		"simba-events:{held}", "simba:{held}:w2", "", "\x00\xff\r\n", "a b", "{", "@@", strings.Repeat("n", 300), "default", "secret"}
	fuzzPatterns = []string{"*", "held", "h*", "[a-", "[^a]?\\", "simba*", strings.Repeat("*a", 40)}
	fuzzScripts  = []string{"return 1", "return redis.call('set',KEYS[1],ARGV[1])", "return redis.call('get','held')", "return {1,{2,'a'},ok='x'}",
		"return redis.pcall('nonsense')", "error('bad')", "redis.call('del','held') error('no')", "return redis.error_reply('a\\r\\nb')",
		"return redis.status_reply('a\\r\\nb')", "return {double=1.5}", "return {}", "x", "#!lua\nreturn 1"}
)

// numbers are the names of arguments that are numbers.
var numbers = []string{"ttl", "ms", "count", "offset", "token", "seq", "cursor", "seconds", "milliseconds", "unix-time-seconds", "unix-time-milliseconds",
	"increment", "decrement", "numkeys", "index", "start", "stop", "end", "score", "min", "max", "bits", "maxage", "client-id", "protover"}

func argumentsOf(r *rand.Rand, grammar []argument) []string {
	var out []string
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	for _, a := range grammar {
		if a.optional && r.IntN(2) == 0 {
			continue
		}
		times := 1
		if a.multiple {
			times = r.IntN(4)
		}
		for range times {
			if a.token != "" {
				out = append(out, a.token)
			}
			switch a.kind {
			case pureToken:
			case oneof:
				out = append(out, argumentsOf(r, []argument{required(a.args[r.IntN(len(a.args))])})...)
			case block:
				out = append(out, argumentsOf(r, a.args)...)
			case pattern:
				out = append(out, pick(fuzzPatterns))
			default:
				switch {
				case a.name == "script":
					out = append(out, pick(fuzzScripts))
				case slices.Contains(numbers, a.name):
					out = append(out, pick(fuzzNumbers))
				default:
					out = append(out, pick(fuzzNames))
				}
			}
		}
	}
	return out
}

func required(a argument) argument {
	a.optional = false
	return a
}

// fuzzCommand is one run of FuzzCommand in fake time.
func fuzzCommand(t *testing.T, e *entry, state int, args [][]byte) {
	if len(args) > 1 && strings.HasPrefix(e.full, "eval") && !slices.Contains(fuzzScripts, string(args[1])) {
		// Only the scripts of fuzzScripts surely end. FuzzScript runs others.
		args[1] = []byte(fuzzScripts[len(args[1])%len(fuzzScripts)])
	}
	eng := newEngine(t)
	file := newUsersFile(t, "user default on nopass ~* &* +@all")
	s := newSite(t, Config{Backend: eng, Users: file.open(), Shutdown: func() {}})

	helper := dialFuzz(t, s)
	for _, command := range []string{"CONFIG SET flush-held-locks yes", "SET orders w1 PX 60000", "HSET hash f 1 g 2", "SIMBA.ACQUIRE held w1 60000 TRANSITION 500",
		"SIMBA.ACQUIRE held w2 1000", "SIMBA.ACQUIRE held p1 1000", "SET endless w1", "SCRIPT LOAD \"return 1\""} {
		if reply := helper.do(words(t, command)...); reply[0] == '-' {
			t.Fatalf("the preparation %s replied %s, want no error", command, reply)
		}
	}
	if state&unauthenticated != 0 {
		file.write("user default on >secret ~* &* +@all")
		if reply := helper.do("ACL", "LOAD"); reply != ok {
			t.Fatalf("ACL LOAD replied %q, want OK", reply)
		}
	}
	p := dialFuzz(t, s)
	proto := 2
	if state&inRESP3 != 0 && state&unauthenticated == 0 {
		proto = 3
		p.do("HELLO", "3")
	}
	if state&inSubscription != 0 {
		p.do("SUBSCRIBE", "somewhere")
	}
	queued := state&inMulti != 0 && state&unauthenticated == 0 && !(state&inSubscription != 0 && proto == 2)
	if queued {
		p.do("MULTI")
	}
	sent := make([]string, len(args))
	for i, a := range args {
		sent[i] = string(a)
	}
	if state&inScript != 0 {
		sent = append([]string{"EVAL", "return redis.pcall(unpack(ARGV))", "0"}, sent...)
	}
	describe := func() string { return fmt.Sprintf("in state %05b: %q", state, sent) }

	before := stateOf(t, eng, helper)
	replies := p.frames(sent...)
	if len(replies) == 0 && p.waits(s) {
		if queued || state&inScript != 0 || !e.has(blocking) {
			t.Fatalf("%s blocks, but must not", describe())
		}
		helper.do("CLIENT", "UNBLOCK", "2")
		synctest.Wait()
		if replies = p.take(); len(replies) != 1 {
			t.Fatalf("%s has the replies %q after CLIENT UNBLOCK, want one", describe(), replies)
		}
		return
	}
	if queued && len(replies) == 1 && replies[0] == "+QUEUED\r\n" {
		before = stateOf(t, eng, helper)
		if replies = p.frames("EXEC"); len(replies) == 1 {
			elements := strings.TrimPrefix(replies[0], "*1\r\n")
			if elements == replies[0] && replies[0][0] != '-' {
				t.Fatalf("%s: EXEC replied %q, want an array of one reply", describe(), replies)
			}
			replies[0] = elements
		}
	}
	checkReplies(t, e, p, proto, replies, describe)
	if len(replies) == 1 && replies[0][0] == '-' {
		if after := stateOf(t, eng, helper); after != before {
			t.Fatalf("%s: the command with the error %q changed\n%s\ninto\n%s", describe(), replies[0], before, after)
		}
	}
	if p.ended() {
		return
	}
	for _, frame := range p.frames("PING") {
		if strings.Contains(frame, "PONG") || strings.Contains(frame, "pong") || frame == "+QUEUED\r\n" || strings.HasPrefix(frame, "-NOAUTH") {
			return
		}
	}
	t.Fatalf("%s: the server did not reply to the next PING", describe())
}

// checkReplies fails unless the number of replies is as documented for the command.
func checkReplies(t *testing.T, e *entry, p *fuzzPeer, proto int, replies []string, describe func() string) {
	t.Helper()
	wanted := 0
	for _, frame := range replies {
		// A line of MONITOR is no reply.
		if frame[0] != '>' && frame[0] != '+' || !strings.Contains(frame, " [0 pipe] ") {
			wanted++
		}
	}
	switch {
	case wanted == 1:
	case p.ended(): // QUIT, SHUTDOWN, CLIENT KILL of itself
	case strings.HasSuffix(e.full, "subscribe"): // one reply for each channel
	case proto == 3 && wanted > 1 && countPushes(replies) >= wanted-1:
		// The command has also sent messages to its own connection.
	default:
		t.Fatalf("%s: %d replies, want 1: %q", describe(), wanted, replies)
	}
}

func countPushes(replies []string) (n int) {
	for _, frame := range replies {
		if frame[0] == '>' {
			n++
		}
	}
	return n
}

// stateOf describes all state that a command with an error must not change.
func stateOf(t *testing.T, eng *engine.Engine, helper *fuzzPeer) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	page, _, err := eng.Scan(ctx, simba.ScanRequest{Count: simba.MaxCount})
	if err != nil || page.Cursor != 0 {
		t.Fatalf("Scan returned the error %v and the cursor %d, want one page", err, page.Cursor)
	}
	slices.Sort(page.Mutexes)
	for _, m := range page.Mutexes {
		tenure, _, _ := eng.Owner(ctx, m)
		queue, _, _ := eng.Queue(ctx, m, simba.MaxCount)
		var lock simba.Lock
		_, _ = eng.Update(func(tx simba.Tx) error {
			lock = tx.Lock(m)
			return nil
		})
		fmt.Fprintf(&b, "%q: %+v %+v %+v\n", m, tenure, queue, lock.Fields)
	}
	stats := eng.Stats()
	fmt.Fprintf(&b, "changes %d, tokens %d\n", stats.Seq, stats.Token)
	b.WriteString(helper.do("CONFIG", "GET", "*"))
	b.WriteString(helper.do("PUBSUB", "CHANNELS"))
	b.WriteString(helper.do("PUBSUB", "NUMPAT"))
	return b.String()
}

// fuzzPeer is a client in fake time that reads all of its input.
type fuzzPeer struct {
	t    testing.TB
	nc   net.Conn
	mu   sync.Mutex // protects the rest
	got  []byte
	over bool
}

func dialFuzz(t testing.TB, s *site) *fuzzPeer {
	p := &fuzzPeer{t: t, nc: s.dial().nc}
	s.running.Go(func() {
		var b [4096]byte
		for {
			n, err := p.nc.Read(b[:])
			p.mu.Lock()
			p.got = append(p.got, b[:n]...)
			p.over = p.over || err != nil
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return p
}

// frames sends a command. When every goroutine waits, it returns all replies.
func (p *fuzzPeer) frames(command ...string) []string {
	p.t.Helper()
	if _, err := p.nc.Write(appendCommand(nil, command)); err != nil {
		return nil
	}
	synctest.Wait()
	return p.take()
}

// do is frames for a command with one reply.
func (p *fuzzPeer) do(command ...string) string {
	p.t.Helper()
	frames := p.frames(command...)
	if len(frames) != 1 {
		p.t.Fatalf("%q has the replies %q, want one", command, frames)
	}
	return frames[0]
}

// take returns the frames that the client has received since the last take. It fails unless they
// are well-formed.
func (p *fuzzPeer) take() (frames []string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := bufio.NewReader(bytes.NewReader(p.got)); ; {
		if _, err := r.Peek(1); err != nil {
			break
		}
		frame, err := readFrame(r)
		if err != nil {
			p.t.Fatalf("no complete frame: %v in %q", err, p.got)
		}
		frames = append(frames, frame)
	}
	p.got = nil
	return frames
}

func (p *fuzzPeer) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (p *fuzzPeer) waits(s *site) bool {
	conn := s.server.Conn(2)
	return conn != nil && conn.Blocked()
}
