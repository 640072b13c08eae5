package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// hostilePackets are inputs that have crashed some reader of RESP, or that are at the limits of the
// protocol.
var hostilePackets = []string{
	"*1\r\n$9223372036854775807\r\nPING\r\n",
	"*9223372036854775807\r\n",
	"*18446744073709551617\r\n$4\r\nPING\r\n",
	"*1\r\n$18446744073709551620\r\nPING\r\n",
	"*2147483647\r\n", "*2147483648\r\n", "*1024\r\n", "*1048576\r\n", "*1048577\r\n",
	"*1\r\n$536870912\r\n", "*1\r\n$536870913\r\n", "*1\r\n$2147483648\r\n",
	"*0\r\n*-1\r\n*-10\r\n\r\nPING\r\n", "*\r\n", "*-\r\n", "*-0\r\n", "*+1\r\n", "*01\r\n", "* 1\r\n", "*1 \r\n", "*a\r\n", "*1\n$4\r\nPING\r\n", "*1\r\n$4\nPING\r\n",
	"*1\r\n$-1\r\n", "*1\r\n$\r\n", "*1\r\n$+4\r\nPING\r\n", "*1\r\n$04\r\nPING\r\n", "*1\r\n$0\r\n\r\n", "*1\r\n$-0\r\n", "*1\r\n:4\r\n", "*1\r\n\r\n", "*1\r\n\n",
	"*1\r\n$4\r\nPINGxxPING\r\n", "*1\r\n$2\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n$-1\r\n",
	"*1\r\n*1\r\n$4\r\nPING\r\n", "$4\r\nPING\r\n", "+PING\r\n", ":1\r\n", "-ERR\r\n", "%1\r\n", "~1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(1\r\n", "=4\r\ntxt:\r\n", ">1\r\n", "|1\r\n",
	"*1\r\n$4\r\nPI", "*1\r\n$4\r\nPING\r", "*1\r\n$4\r\nPING", "*1\r", "*", "PING", "PING\r", "\r\n", "\n", "\x00", "*\x00", "$\x00", "\x00\r\n", "PING\x00\r\n", "*1\x00\r\n", "PING \x00x\r\n", "*1\r\n$4\x00\r\nPING\r\n",
	"PING\n", "ping\r\r\n", " PING\r\n", "\tPING\v\f\r\n", "\vPING\r\n", "PING a\vb\r\n", "PING a\fb\r\n", "PING a\rb\r\n", "PING \"a\rb\"\r\n", "PING 'a\tb'\r\n",
	"PING \"open\r\n", "PING 'open\r\n", "PING \"a\"b\r\n", "PING 'a'b\r\n", "PING a\"b\"\r\n", "PING a\"b c\"\r\n", "ECHO \"a\\x00b\\n\\xzz\\q\\\"\"\r\n", "ECHO 'c\\'d\\n'\r\n", "ECHO \"\"\r\n", "ECHO ''\r\n", "\"\"\r\n", "\"PING\"\r\n", "ECHO \"\\x4\"\r\n", "ECHO \"\\\r\n", "ECHO \"a\"\v\r\n", "ECHO \"a\"\x00\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "post\r\n", "PING\r\nHOST: x\r\n", "*1\r\n$4\r\nPOST\r\n", "*1\r\n$5\r\nhost:\r\n",
	"AUTH secret\r\nPING\r\n", "AUTH wrong\r\nPING\r\n", "HELLO 3 AUTH default secret\r\nPING\r\n", "PING\r\nAUTH default secret\r\nECHO a\r\n", "HELLO\r\n", "HELLO 2\r\n", "HELLO 3\r\nGET x\r\n",
	"*11\r\n", "*10\r\n", "*1\r\n$16384\r\n", "*1\r\n$16385\r\n", "QUIT\r\nPING\r\n", "RESET\r\nPING\r\n", "MULTI\r\nPING\r\n*1\r\n$-5\r\n", "CLIENT REPLY OFF\r\n*x\r\n", "CLIENT REPLY SKIP\r\nPING\r\nPING\r\n",
	"AUTH secret\r\n*11\r\n", "SUBSCRIBE a\r\nGET x\r\nPING\r\n*x\r\n", "MULTI\r\nnonsense\r\nEXEC\r\n", "MULTI\r\nGET\r\nEXEC\r\n", "EXEC a\r\nDISCARD\r\n",
	strings.Repeat("*1\r\n$4\r\nPING\r\n", 100), strings.Repeat("PING\r\n", 100), strings.Repeat("x", 20_000), strings.Repeat("x ", 5_000) + "\r\n", "*" + strings.Repeat("1", 20_000), "*1\r\n$" + strings.Repeat("1", 20_000),
	"*1\r\n$-9223372036854775808\r\n", "*-9223372036854775808\r\nPING\r\n", "*-9223372036854775809\r\n", "*-2147483649\r\nPING\r\n",
}

var trafficTemplates = []string{"PING", "PING v", "ECHO v", "AUTH p", "AUTH default p", "HELLO", "HELLO n", "HELLO 3 AUTH default p", "SELECT n", "QUIT", "RESET", "MULTI", "MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH",
	"GET k", "GET k", "SET k v", "SET k v NX", "SET k v XX GET", "SETNX k v", "DEL k k", "EXISTS k", "INCR k", "INCRBY k n", "DECR k", "STRLEN k", "TYPE k", "GETDEL k", "MGET k k", "HSET k v v", "HGET k v", "HDEL k v", "HLEN k",
	"SUBSCRIBE v", "UNSUBSCRIBE v", "UNSUBSCRIBE", "PSUBSCRIBE v", "PUNSUBSCRIBE", "CLIENT SETNAME v", "CLIENT GETNAME", "CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "DBSIZE", "PERSIST k", "FLUSHDB",
	"nonsense v", "GET", "SET k", "ECHO", "PING v v", "SHUTDOWN", "OBJECT ENCODING k", "LPUSH k v", "CONFIG GET v"}

// makeTraffic generates the input of a client: commands in RESP and inline commands. Some bytes may
// be lost, doubled or changed.
func makeTraffic(r *rand.Rand) []byte {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	var b []byte
	for range 1 + r.IntN(8) {
		if r.IntN(12) == 0 {
			b = append(b, pick(hostilePackets...)...)
			continue
		}
		words := strings.Fields(pick(trafficTemplates...))
		for i, w := range words {
			switch w {
			case "k":
				words[i] = pick("a", "b", "bin\x00\xff", "a b")
			case "v":
				words[i] = pick("x", "1", "", "\r\n", "a\"b'\\", strings.Repeat("y", r.IntN(130)), "\x00")
			case "n":
				words[i] = pick("0", "1", "2", "3", "-1", "01", "9223372036854775807", "9223372036854775808", "x")
			case "p":
				words[i] = pick("secret", "secret", "wrong", "")
			}
		}
		if r.IntN(3) > 0 {
			b = appendCommand(b, words)
			continue
		}
		for i, w := range words {
			if i > 0 && (w == "" || strings.Trim(w, inlinePlain) != "") {
				w = quoteInline(w)
			}
			b = append(append(b, w...), ' ')
		}
		b = append(b, pick("\r\n", "\r\n", "\n")...)
	}
	for range r.IntN(3) * r.IntN(3) {
		b = mutate(r, b)
	}
	return b[:min(len(b), comparedLimit)]
}

// inlinePlain are the bytes of words that need no quotes in an inline command.
const inlinePlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

func quoteInline(w string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(w) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	b.WriteByte('"')
	return b.String()
}

// mutate changes a packet as a broken client or network would.
func mutate(r *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	i := r.IntN(len(b))
	j := min(len(b), i+1+r.IntN(8))
	switch r.IntN(6) {
	case 0:
		return b[:i]
	case 1:
		return append(bytes.Clone(b[:i]), b[j:]...)
	case 2:
		return append(bytes.Clone(b[:j]), b[i:]...)
	case 3:
		b = bytes.Clone(b)
		b[i] = "\r\n*$0192-\"' \x00a"[r.IntN(14)]
		return b
	case 4:
		b = bytes.Clone(b)
		b[i] ^= 1 << r.IntN(8)
		return b
	default:
		number := fmt.Sprint([]int64{0, 1, -1, 11, 1024, 1025, 16385, 65537, 1 << 20, 1<<20 + 1, 512 << 20, 1 << 31, 1 << 62}[r.IntN(13)])
		return append(append(bytes.Clone(b[:i]), number...), b[i:]...)
	}
}
