package resp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parse feeds data in pieces of the given size (0 = as much as fits) and returns the commands up to
// the first error. It fails the test if the buffer exceeds its bound.
func parse(t testing.TB, l Limits, unauth bool, data string, piece int) (commands []string, err error) {
	t.Helper()
	r := newReader(l)
	fed := 0
	for fed < len(data) {
		room, err := r.space()
		if err != nil {
			return commands, err
		}
		if piece > 0 {
			room = room[:min(piece, len(room))]
		}
		n := copy(room, data[fed:])
		r.feed(n)
		fed += n
		if bound := max(minBuffer, min(batchBuffer, 2*fed), 2*r.buffered()); len(r.buf) > bound {
			t.Fatalf("the buffer has %d bytes, want at most %d after %d received bytes, of which %d are unread", len(r.buf), bound, fed, r.buffered())
		}
		for {
			args, err := r.next(unauth)
			if err != nil {
				return commands, err
			}
			if args == nil {
				break
			}
			checkLimits(t, l, unauth, args)
			commands = append(commands, fmt.Sprintf("%q", args))
		}
	}
	return commands, nil
}

// checkLimits fails the test if a command exceeds the limits.
func checkLimits(t testing.TB, l Limits, unauth bool, args [][]byte) {
	t.Helper()
	most, longest := l.Args, l.Arg
	if unauth {
		most, longest = unauthArgs, unauthArg
	}
	if l.MayBeLong != nil && l.MayBeLong(args[0]) && !unauth {
		longest = l.Command
	}
	size := 0
	for _, a := range args {
		size += len(a)
		if len(a) > longest {
			t.Fatalf("an argument has %d bytes, at most %d are allowed", len(a), longest)
		}
	}
	if len(args) > most || size > max(l.Command, l.Inline) {
		t.Fatalf("a command has %d arguments of %d bytes in all, which exceeds the limits", len(args), size)
	}
}

func defaults() Limits { return Limits{}.withDefaults() }

func TestCommandsAreReadInAnyPieces(t *testing.T) {
	const data = "*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n" +
		"*0\r\n*-1\r\n*-9223372036854775808\r\n\r\n   \r\n\n" + // empty commands
		"ping \"a b\\x41\\n\" 'it\\'s'\r\n" +
		"PING\n" +
		"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n"
	want := []string{
		`["PING"]`, `["SET" "" "a\r\nb"]`, `["ping" "a bA\n" "it's"]`, `["PING"]`, `["ECHO" "hi"]`,
	}
	for piece := range len(data) + 1 {
		got, err := parse(t, defaults(), false, data, piece)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d: commands %v, error %v; want %v", piece, got, err, want)
		}
	}
}

func TestHostilePacketsGetRedisErrors(t *testing.T) {
	long := strings.Repeat("1", 70_000)
	tests := []struct{ name, data, want string }{
		{"bulk length of the largest int64", "*1\r\n$9223372036854775807\r\nPING\r\n", "invalid bulk length"},
		{"count of the largest int64", "*9223372036854775807\r\n", "invalid multibulk length"},
		{"count that wraps to 1", "*18446744073709551617\r\n$4\r\nPING\r\n", "invalid multibulk length"},
		{"bulk length that wraps to 4", "*1\r\n$18446744073709551620\r\nPING\r\n", "invalid bulk length"},
		{"count below the least int64", "*-9223372036854775809\r\n", "invalid multibulk length"},
		{"count beyond the limit", "*16385\r\n", "invalid multibulk length"},
		{"bulk beyond the limit", "*1\r\n$65537\r\n", "invalid bulk length"},
		{"command beyond the limit", "*17\r\n" + strings.Repeat("$65536\r\n"+strings.Repeat("x", 65536)+"\r\n", 16) + "$1\r\n", "invalid bulk length"},
		{"negative bulk length", "*1\r\n$-1\r\n", "invalid bulk length"},
		{"no count", "*\r\n", "invalid multibulk length"},
		{"no bulk length", "*1\r\n$\r\n", "invalid bulk length"},
		{"count with plus", "*+1\r\n", "invalid multibulk length"},
		{"count with blank", "* 1\r\n", "invalid multibulk length"},
		{"count with zero in front", "*01\r\n", "invalid multibulk length"},
		{"count minus zero", "*-0\r\n", "invalid multibulk length"},
		{"count minus", "*-\r\n", "invalid multibulk length"},
		{"count that is no number", "*a\r\n", "invalid multibulk length"},
		{"count without carriage return", "*1\n", "invalid multibulk length"},
		{"lone newline as count", "*1\r\n\n", "expected '$', got '\n'"},
		{"payload longer than its bulk length", "*1\r\n$2\r\nPING\r\n", "invalid bulk length"},
		{"bulk that ends with a newline only", "*1\r\n$4\r\nPINGx\n", "invalid bulk length"},
		{"no dollar", "*1\r\n:4\r\n", "expected '$', got ':'"},
		{"too long count without a line end", "*" + long, "too big mbulk count string"},
		{"too long count with a line end", "*" + long + "\r\n", "too big mbulk count string"},
		{"endless bulk length", "*1\r\n$" + long, "too big bulk count string"},
		{"too long line without a line end", long, "too big inline request"},
		{"too long line with a line end", long + "\r\n", "too big inline request"},
		{"too many words", strings.Repeat("a ", 16385) + "\r\n", "invalid multibulk length"},
		{"open quote", "PING \"a\r\n", "unbalanced quotes in request"},
		{"open single quote", "PING 'a\r\n", "unbalanced quotes in request"},
		{"text directly after a quote", "PING \"a\"b\r\n", "unbalanced quotes in request"},
	}
	for _, tt := range tests {
		for _, piece := range []int{0, 1, 7} {
			commands, err := parse(t, defaults(), false, tt.data, piece)
			if len(commands) > 0 || err == nil || err.Error() != "Protocol error: "+tt.want {
				t.Errorf("%s, in pieces of %d: commands %v, error %v; want error %s", tt.name, piece, commands, err, tt.want)
			}
		}
	}
}

func TestLimitsBeforeAuthenticationAreLower(t *testing.T) {
	arg := strings.Repeat("x", 16<<10)
	tests := []struct{ name, data, want string }{
		{"arguments", "*11\r\n", "unauthenticated multibulk length"},
		{"bytes", "*1\r\n$16385\r\n", "unauthenticated bulk length"},
		{"words", "1 2 3 4 5 6 7 8 9 10 11\r\n", "unauthenticated multibulk length"},
		{"bytes of a word", arg + "x\r\n", "unauthenticated bulk length"},
	}
	for _, tt := range tests {
		if _, err := parse(t, defaults(), true, tt.data, 0); err == nil || err.Error() != "Protocol error: "+tt.want {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
		if _, err := parse(t, defaults(), false, tt.data, 0); err != nil {
			t.Errorf("%s, once authenticated: %v; want no error", tt.name, err)
		}
	}
	within := bulk("1", "2", "3", "4", "5", "6", "7", "8", "9", arg)
	if got, err := parse(t, defaults(), true, within, 0); len(got) != 1 || err != nil {
		t.Errorf("arguments within the limits: %d commands, %v; want 1", len(got), err)
	}
}

func TestTheLargestCommandIsRead(t *testing.T) {
	words := make([]string, 1024)
	for i := range words {
		words[i] = strings.Repeat("x", 1024)
	}
	if got, err := parse(t, defaults(), false, bulk(words...), 0); len(got) != 1 || err != nil {
		t.Errorf("the largest command: %d commands, error %v; want 1", len(got), err)
	}
}

func TestCommandLimitIsPerCommand(t *testing.T) {
	l := Limits{Command: 100}.withDefaults()
	if got, err := parse(t, l, false, strings.Repeat(bulk("PING", strings.Repeat("x", 90)), 10), 0); len(got) != 10 || err != nil {
		t.Errorf("commands within the limit: %d commands, error %v; want 10", len(got), err)
	}
}

func TestLongPipelinesAreReadInLongBatches(t *testing.T) {
	r := newReader(defaults())
	for i := range 10 {
		room, err := r.space()
		if err != nil {
			t.Fatal(err)
		}
		if want := min(minBuffer<<i, batchBuffer); len(room) != want {
			t.Fatalf("read %d has room for %d bytes, want %d", i, len(room), want)
		}
		r.feed(copy(room, strings.Repeat("\n", len(room))))
		if args, err := r.next(false); args != nil || err != nil {
			t.Fatalf("next returned %q, %v for empty lines; want no command", args, err)
		}
	}
}

func TestHTTPIsRefused(t *testing.T) {
	for _, data := range []string{"POST / HTTP/1.1\r\n", "post /\r\n", "Host: localhost\r\n", "GET / HTTP/1.1\r\nhOST: x\r\n",
		"*1\r\n$4\r\nPOST\r\n", "*2\r\n$5\r\nhost:\r\n$1\r\nx\r\n"} {
		if _, err := parse(t, defaults(), false, data, 0); !errors.Is(err, errCrossProtocol) {
			t.Errorf("%q: error %v, want errCrossProtocol", data, err)
		}
	}
}

func TestTLSOnThePlainPortIsDetected(t *testing.T) {
	for _, before := range []string{"", "PING\r\n", "*1\r\n$4\r\nPING\r\n"} {
		got, err := parse(t, defaults(), true, before+"\x16\x03", 0)
		if err == nil || err.Error() != "Protocol error: this port does not speak TLS" || (len(got) > 0) != (before != "") {
			t.Errorf("after %q: commands %v, error %v, want an error about TLS", before, got, err)
		}
	}
	// A command may begin with 0x16 if 0x03 does not follow. Inside a command, both are ordinary.
	if got, err := parse(t, defaults(), true, "\x16\r\n", 1); err != nil || len(got) != 1 {
		t.Errorf("commands %v, error %v, want one command that is the byte 0x16", got, err)
	}
	if got, err := parse(t, defaults(), true, "PING \x16\r\n*2\r\n$1\r\n\x16\r\n$1\r\n\x16\r\n", 1); err != nil || len(got) != 2 {
		t.Errorf("commands %v, error %v, want two commands with the byte 0x16", got, err)
	}
}

func TestEachByteIsScannedOnce(t *testing.T) {
	for _, data := range []string{
		strings.Repeat("x", 60_000),             // a line without an end
		"*1\r\n$" + strings.Repeat("1", 60_000), // a length without an end
		"*1\r\n$65536\r\n" + strings.Repeat("x", 60_000),
		"*1024\r\n" + strings.Repeat("$1\r\nx\r\n", 1000),
	} {
		r := newReader(defaults())
		moves := 0
		for i := range len(data) {
			size := len(r.buf)
			room, err := r.space()
			if err != nil {
				t.Fatal(err)
			}
			if size != len(r.buf) {
				moves++
			}
			room[0] = data[i]
			r.feed(1)
			from := r.pos
			if _, err := r.next(false); err != nil {
				t.Fatal(err)
			}
			if r.pos < from {
				t.Fatal("the reader parsed a byte twice")
			}
			if r.bulk < 0 && r.seen != r.end {
				t.Fatalf("after byte %d the reader will search %d bytes again", i, r.end-r.seen)
			}
		}
		if moves > 10 {
			t.Errorf("the reader moved %d bytes %d times, want at most 10", len(data), moves)
		}
	}
}

func TestClaimedLengthReservesNoMemory(t *testing.T) {
	r := newReader(defaults())
	room, _ := r.space()
	r.feed(copy(room, "*1024\r\n$65536\r\n"))
	if _, err := r.next(false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.space(); err != nil || len(r.buf) > minBuffer || cap(r.spans) > 8 {
		t.Errorf("after an announced length the reader has a buffer of %d bytes and room for %d arguments, error %v", len(r.buf), cap(r.spans), err)
	}
}

func TestArgumentsStayValidDuringABlockedCommand(t *testing.T) {
	r := newReader(defaults())
	room, _ := r.space()
	r.feed(copy(room, bulk("ACQUIRE", "job", "a")+"*1\r\n$4\r\nPI"))
	args, err := r.next(false)
	if err != nil {
		t.Fatal(err)
	}
	r.next(false)
	for range 100_000 {
		room, err := r.extend()
		if err != nil {
			t.Fatal(err)
		}
		room[0] = 'x'
		r.feed(1)
	}
	if got := fmt.Sprintf("%q", args); got != `["ACQUIRE" "job" "a"]` {
		t.Errorf("arguments of the blocked command changed to %s", got)
	}
}

func TestInputDuringABlockedCommandIsBounded(t *testing.T) {
	r := newReader(Limits{Args: 4, Arg: 1000, Command: 4000, Inline: 1000}.withDefaults())
	total := 0
	for {
		room, err := r.extend()
		if errors.Is(err, errFlooded) {
			break
		}
		r.feed(len(room))
		if total += len(room); total > 10_000 {
			t.Fatal("the reader accepts input without a limit")
		}
	}
	if len(r.buf) > 4000+4*headerSize+1000 {
		t.Errorf("the reader's buffer grew to %d bytes during the blocked command", len(r.buf))
	}
}

func TestGrownBufferIsReleased(t *testing.T) {
	r := newReader(defaults())
	feed := func(data string) {
		for len(data) > 0 {
			room, err := r.space()
			if err != nil {
				t.Fatal(err)
			}
			n := copy(room, data)
			data = data[n:]
			r.feed(n)
			for args, _ := r.next(false); args != nil; args, _ = r.next(false) {
			}
		}
	}
	feed(bulk(strings.Repeat("x", 60_000)))
	r.shrink()
	if !r.grown() {
		t.Error("shrink released a buffer that had been full")
	}
	feed("*1\r\n$4\r\nPI")
	r.shrink()
	if !r.grown() {
		t.Error("shrink released a buffer with a part of a command")
	}
	feed("NG\r\n")
	r.shrink()
	r.shrink()
	if r.grown() {
		t.Error("shrink kept an unused buffer")
	}
	if got, err := r.next(false); got != nil || err != nil {
		t.Errorf("next of an empty reader returned %q, %v; want nil", got, err)
	}
	feed(bulk("PING"))
}

func TestSomeCommandsMayHaveLongArguments(t *testing.T) {
	l := Limits{Arg: 10, Command: 100, MayBeLong: func(command []byte) bool { return string(command) == "EVAL" }}.withDefaults()
	long := strings.Repeat("x", 50)
	for name, test := range map[string]struct {
		data string
		ok   bool
	}{
		"an argument of EVAL":                        {fmt.Sprintf("*2\r\n$4\r\nEVAL\r\n$50\r\n%s\r\n", long), true},
		"an argument of ECHO":                        {fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$50\r\n%s\r\n", long), false},
		"a command's name":                           {fmt.Sprintf("*2\r\n$50\r\n%s\r\n$1\r\na\r\n", long), false},
		"arguments of EVAL beyond the command limit": {fmt.Sprintf("*3\r\n$4\r\nEVAL\r\n$50\r\n%s\r\n$50\r\n%s\r\n", long, long), false},
		"an argument of ECHO after EVAL":             {fmt.Sprintf("*1\r\n$4\r\nEVAL\r\n*2\r\n$4\r\nECHO\r\n$50\r\n%s\r\n", long), false},
		"an argument of EVA":                         {fmt.Sprintf("*2\r\n$3\r\nEVA\r\n$50\r\n%s\r\n", long), false},
		"the last argument of EVAL":                  {fmt.Sprintf("*3\r\n$4\r\nEVAL\r\n$1\r\na\r\n$50\r\n%s\r\n", long), true},
	} {
		for piece := range 8 {
			if _, err := parse(t, l, false, test.data, piece); (err == nil) != test.ok {
				t.Errorf("%s, in pieces of %d: error %v; want success: %v", name, piece, err, test.ok)
			}
		}
	}
	if _, err := parse(t, Limits{MayBeLong: l.MayBeLong}.withDefaults(), true, bulk("EVAL", strings.Repeat("x", unauthArg+1)), 0); err == nil {
		t.Error("an unauthenticated client may send a long argument")
	}
}
