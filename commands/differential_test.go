package commands

import (
	"bufio"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// This server and Redis reply to these commands with the same bytes.
var sameBytes = []string{
	"PING", "PING a", "PING a b", "ECHO", `ECHO "a\r\nb"`, "ECHO a b",
	"nonsense", "nonsense a b", `nonsense "` + strings.Repeat("x", 200) + `" b`, strings.Repeat("y", 200),
	"SELECT 0", "SELECT 16", "SELECT -1", "SELECT x", "SELECT 99999999999999999999", "SELECT 2147483648", "SELECT -2147483649",
	"AUTH", "AUTH a", "AUTH default a", "AUTH nobody a", "AUTH a b c",
	"HELLO x", "HELLO 1", "HELLO 4", "HELLO 2 NONSENSE", "HELLO 2 AUTH a", "HELLO 2 AUTH nobody b", `HELLO 2 SETNAME "a b"`,
	"RESET", "RESET a",
	"CLIENT", "CLIENT nonsense", "CLIENT nonsense a b", "CLIENT ID a", "CLIENT GETNAME", "CLIENT SETNAME x", "CLIENT GETNAME",
	`CLIENT SETNAME "a b"`, "CLIENT SETNAME", `CLIENT SETNAME ""`, "CLIENT GETNAME",
	"CLIENT KILL", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID x", "CLIENT KILL ID 0", "CLIENT KILL ID 9999",
	"CLIENT KILL USER nobody", "CLIENT KILL SKIPME x", "CLIENT KILL nonsense x", "CLIENT KILL ADDR 1.2.3.4:5 USER", "CLIENT KILL ADDR 1.2.3.4:5",
	"CLIENT UNBLOCK", "CLIENT UNBLOCK x", "CLIENT UNBLOCK 9999", "CLIENT UNBLOCK 9999 ERROR", "CLIENT UNBLOCK 9999 TIMEOUT", "CLIENT UNBLOCK 9999 x", "CLIENT UNBLOCK 9999 ERROR x",
	"CLIENT TRACKING OFF", "CLIENT TRACKING x",
	"MULTI", "MULTI", "PING", "EXEC", "EXEC", "EXEC x", "DISCARD", "MULTI", "DISCARD", "MULTI", "nonsense", "PING", "EXEC",
	"MULTI", "ECHO", "EXEC", "MULTI", "PING x", "SELECT x", "SELECT 0", "EXEC", "MULTI", "EXEC", "MULTI", "SHUTDOWN", "EXEC", "MULTI", "RESET", "EXEC",
	"CONFIG", "CONFIG nonsense", "CONFIG GET", "CONFIG GET save", "CONFIG GET SA?E", "CONFIG GET nonsense", "CONFIG GET slowlog-max-len slowlog*len",
	"CONFIG SET", "CONFIG SET a", "CONFIG SET a b", "CONFIG SET a b c", "CONFIG SET a b c d e", "CONFIG SET databases 3",
	"CONFIG SET slowlog-max-len x", "CONFIG SET slowlog-max-len 100 slowlog-max-len 10",
	"CONFIG SET slowlog-max-len 100 nonsense 1", "CONFIG GET slowlog-max-len", "CONFIG SET slowlog-max-len 100", "CONFIG GET slowlog-max-len", "CONFIG SET SLOWLOG-MAX-LEN 128",
	"SLOWLOG", "SLOWLOG RESET", "SLOWLOG LEN", "SLOWLOG GET", "SLOWLOG GET x", "SLOWLOG GET -2", "SLOWLOG GET 1 2",
	"MODULE", "MODULE LIST", "ACL WHOAMI", "ACL nonsense", "CLUSTER", "CLUSTER INFO", "CLUSTER SLOTS",
	"DBSIZE", "DBSIZE x", "ROLE", "TIME x", "TYPE", "TYPE nokey", "STRLEN nokey", "SCAN", "SCAN x", "SCAN 0", "SCAN 0 MATCH", "SCAN 0 MATCH x", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 x y",
	"SHUTDOWN x", "SHUTDOWN ABORT", "SHUTDOWN ABORT NOW",
	"PUBLISH", "PUBLISH a", "PUBLISH a b", "SPUBLISH a b", "PUBSUB", "PUBSUB nonsense", "PUBSUB CHANNELS", "PUBSUB CHANNELS a b", "PUBSUB NUMSUB", "PUBSUB NUMSUB a b", "PUBSUB NUMPAT", "PUBSUB NUMPAT x",
	"ACL WHOAMI x",
	"ACL DRYRUN default get x", "ACL DRYRUN default nonsense", "ACL DRYRUN nobody get x", "ACL DRYRUN default get", "ACL DRYRUN default config nonsense", "ACL GETUSER nobody", "ACL GETUSER default",
	"ACL LIST", "ACL USERS", "ACL SETUSER", "ACL DELUSER", "ACL LOAD x", "ACL SAVE x",
	"PUBSUB SHARDCHANNELS", "PUBSUB SHARDNUMSUB a",
	"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a", "SUBSCRIBE", "SUBSCRIBE a", "PUBSUB CHANNELS", "SUBSCRIBE a", "PSUBSCRIBE a*", "SSUBSCRIBE s",
	"PING", "PING x", "UNSUBSCRIBE a", "PUNSUBSCRIBE", "SUNSUBSCRIBE s", "PING",
	"COMMAND NONSENSE", "COMMAND INFO nonsense", "COMMAND DOCS nonsense",
}

// To a RESP2 connection with a subscription, this server and Redis reply with the same bytes.
var sameBytesSubscribed = []string{
	"SUBSCRIBE a", "SSUBSCRIBE s", "PING", "PING x", "PING x y", "nonsense", "ECHO x", "CLIENT LIST", "CLIENT nonsense", "MULTI", "COMMAND", "HELLO 2",
	"UNSUBSCRIBE a", "ECHO x", "SUNSUBSCRIBE", "ECHO x", "PSUBSCRIBE x*", "ECHO x", "RESET", "ECHO x", "SUBSCRIBE a", "QUIT",
}

// This server and Redis reply to these commands in the same form, with different values.
var sameShape = []string{
	"HELLO", "TIME", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "INFO", "INFO server", "INFO nonsense", "INFO all",
	"AUTH nobody x", "CLIENT HELP", "CONFIG HELP", "PUBSUB HELP", "SLOWLOG HELP", "MODULE HELP", "ACL HELP", "COMMAND HELP",
}

// COMMAND INFO must be the same in both servers up to infoOf, because clients route and pipeline by
// it.
var sameInfo = []string{
	"auth", "echo", "hello", "ping", "quit", "reset", "select", "client|getname", "client|id", "client|info", "client|kill",
	"client|setname", "client|tracking", "client|unblock", "client|help", "publish", "spublish", "subscribe", "psubscribe", "unsubscribe",
	"pubsub|channels", "pubsub|numsub", "pubsub|help", "discard", "exec", "multi", "dbsize", "scan", "type", "strlen", "info", "time", "role", "module|list",
	"config|get", "config|set", "config|rewrite", "slowlog|get", "slowlog|len", "slowlog|reset",
	"eval", "evalsha", "script|exists", "script|flush", "script|load", "script|kill", "script|help", "watch", "unwatch",
	"command|docs", "command|info", "acl|whoami", "acl|users", "acl|list", "acl|getuser", "acl|load", "acl|save", "acl|setuser", "acl|deluser", "acl|dryrun", "acl|help",
}

// expectSame sends commands to both servers, and compares the replies byte by byte, or by alike.
func expectSame(ours, theirs *peer, commands []string, alike ...func(command, got, want string) bool) {
	ours.t.Helper()
	for _, command := range commands {
		want, got := theirs.do(command), ours.do(command)
		if got != want && !slices.ContainsFunc(alike, func(a func(string, string, string) bool) bool { return a(command, got, want) }) {
			ours.t.Errorf("%s:\n  ours %q\ntheirs %q", command, got, want)
		}
	}
}

// inBothProtocols calls test with connections to a new site and to the Redis, in RESP2 and then in
// RESP3. The Redis has no keys.
func inBothProtocols(t *testing.T, redis func(testing.TB) *peer, newSite func() *site, test func(s *site, proto string, ours, theirs *peer)) {
	t.Helper()
	for _, proto := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(proto, func(t *testing.T) {
			s := newSite()
			ours, theirs := s.dial(), redis(t)
			ours.t = t
			theirs.expect("FLUSHALL", ok)
			ours.do(proto)
			theirs.do(proto)
			test(s, proto, ours, theirs)
		})
	}
}

// expectSameAsRedis compares the replies of an embedded engine with those of a real Redis.
func expectSameAsRedis(t *testing.T, commands []string) {
	t.Helper()
	inBothProtocols(t, realRedis(t), func() *site { return newEngineSite(t) }, func(_ *site, _ string, ours, theirs *peer) {
		expectSame(ours, theirs, commands, sameRemainder)
	})
}

// sameRemainder reports whether both replies are the remaining time of the same expiry. The
// expiries of these tests differ by more than the time between two requests.
func sameRemainder(command, got, want string) bool {
	name, _, _ := strings.Cut(command, " ")
	return (name == "TTL" || name == "PTTL") && sameTime(got, want)
}

func TestSharedCommandsReplyAsRedis(t *testing.T) {
	inBothProtocols(t, realRedis(t), func() *site { return newSite(t, Config{}) }, func(_ *site, proto string, ours, theirs *peer) {
		for _, p := range []*peer{ours, theirs} {
			p.expect("CONFIG SET slowlog-log-slower-than -1", ok)
		}
		commands := sameBytes
		if proto == "HELLO 3" { // RESET would change the protocol to RESP2
			commands = slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return c == "RESET" })
		}
		expectSame(ours, theirs, commands)
	})
}

func TestASubscribedConnectionRepliesAsRedis(t *testing.T) {
	ours, theirs := newSite(t, Config{}).dial(), realRedis(t)(t)
	expectSame(ours, theirs, sameBytesSubscribed)
	ours.expectEnd()
}

func TestRepliesHaveTheFormOfRedis(t *testing.T) {
	inBothProtocols(t, realRedis(t), func() *site { return newEngineSite(t) }, func(_ *site, _ string, ours, theirs *peer) {
		expectSame(ours, theirs, sameShape, func(_, got, want string) bool { return shape(got) == shape(want) })
		names := slices.Clone(sameInfo)
		for _, c := range slices.Concat(stringCommands, genericCommands, keyspaceCommands, hashCommands, queueCommands) {
			if c.since < "8" { // the real Redis is of version 7
				names = append(names, c.name)
			}
		}
		for i, name := range names {
			names[i] = "COMMAND INFO " + name
		}
		expectSame(ours, theirs, names, func(_, got, want string) bool { return infoOf(got) == infoOf(want) })
	})
}

// infoOf returns a reply of COMMAND INFO for one command up to its ACL categories. This server leaves
// the rest empty: tips, key specifications and subcommands.
func infoOf(reply string) string {
	lines := strings.SplitAfter(reply, "\r\n")
	last := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "+@") {
			last = i
		}
	}
	return strings.Join(lines[:last+1], "")
}

// shape returns the types of the frames in a reply. Successive frames of one type count once.
func shape(reply string) string {
	var b strings.Builder
	for rest := reply; rest != ""; {
		line, after, _ := strings.Cut(rest, "\r\n")
		if s := b.String(); s == "" || s[len(s)-1] != line[0] {
			b.WriteByte(line[0])
		}
		if n, err := strconv.Atoi(line[1:]); err == nil && n >= 0 && strings.ContainsRune("$=", rune(line[0])) {
			after = after[n+2:]
		}
		rest = after
	}
	return b.String()
}

// realRedis starts a Redis and returns a function that connects to it.
func realRedis(t testing.TB, args ...string) func(testing.TB) *peer {
	t.Helper()
	bin := need.Program(t, "redis-server", "redis-server")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	args = append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--daemonize", "no"}, args...)
	cmd := exec.Command(bin, args...)
	cmd.SysProcAttr = stores.DieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to accept connections") {
	}
	return func(t testing.TB) *peer {
		nc, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return newPeer(t, nc)
	}
}
