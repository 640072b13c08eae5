package abuse

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var (
	attackName = flag.String("attack", "", "run this attack until killed, and no tests")
	victimAddr = flag.String("victim", "", "address of the server to attack")
)

// attack is an abuse that runs in its own process.
type attack struct {
	name  string
	begin func(addr string) error // returns when the attack has begun

	password string // of the victim, unknown to the attacker; "" = none
	tls      bool   // addr is the TLS address
}

var attacks = []attack{
	{name: "10000Idle", begin: func(addr string) error { return crowd(10_000, addr) }},
	{name: "1000ByteByByte", begin: byteByByte},
	{name: "Churn", begin: churn},
	{name: "Pipeline", begin: floods(strings.Repeat("PING\r\n", 10_000))},
	{name: "4Pipelines", begin: many(4, floods(strings.Repeat("PING\r\n", 10_000)))},
	{name: "PipelinedLocks", begin: floods(strings.Repeat(words("SIMBA.ACQUIRE", "flooded", "c", 1000, "NOQUEUE"), 1000))},
	{name: "Keys", begin: func(addr string) error {
		if err := ask(addr, mutexes(20_000), 20_000); err != nil {
			return err
		}
		return floods(strings.Repeat(words("KEYS", "*"), 2))(addr)
	}},
	{name: "64Keys", begin: func(addr string) error {
		if err := ask(addr, mutexes(20_000), 20_000); err != nil {
			return err
		}
		return many(64, floods(strings.Repeat(words("KEYS", "*"), 2)))(addr)
	}},
	{name: "64Scripts", begin: many(64, floods(strings.Repeat(words("EVAL", "for i = 1, 100000 do end", 0), 10)))},
	{name: "4TLSPipelines", tls: true, begin: many(4, tlsFlood(strings.Repeat("PING\r\n", 10_000)))},
	{name: "ScriptErrors", begin: floods(strings.Repeat(words("EVAL", "error({err='X x'})", 0), 100))},
	{name: "DeepTransactions", begin: floods("MULTI\r\n" + strings.Repeat(words("SET", "k", "v", "PX", 1000), 1000) + "EXEC\r\n")},
	{name: "10000Patterns", begin: patterns},
	{name: "UnreadReplies", begin: many(20, unread)},
	{name: "StuckSubscriberOf1000", begin: stuckSubscriber},
	{name: "HugeNames", begin: floods(strings.Repeat(hugeNames, 10))},
	{name: "4HugeNames", begin: many(4, floods(strings.Repeat(hugeNames, 10)))},
	{name: "300HugeNames", begin: many(300, floods(strings.Repeat(hugeNames, 10)))},
	{name: "200Guess", begin: many(200, guess), password: "secret"},
	{name: "HTTP", begin: again(func(addr string) error {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		defer c.reset()
		_ = c.send("POST / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("SIMBA.ACQUIRE stolen http 600000\r\n", 100))
		return c.ended()
	})},
}

// attackForever is the main function of the attacking process. It prints a line when the attack has
// begun.
func attackForever() error {
	i := slices.IndexFunc(attacks, func(a attack) bool { return a.name == *attackName })
	if i < 0 {
		return fmt.Errorf("unknown attack %q", *attackName)
	}
	if err := attacks[i].begin(*victimAddr); err != nil {
		return err
	}
	fmt.Println("begun")
	select {}
}

func testBinary(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	simbatest.Must(t, err)
	return path
}

func many(n int, begin func(addr string) error) func(addr string) error {
	return func(addr string) error {
		for range n {
			if err := begin(addr); err != nil {
				return err
			}
		}
		return nil
	}
}

// floods returns an attack that sends the same commands again and again, and reads the replies.
func floods(command string) func(addr string) error {
	return func(addr string) error {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		flood(c, command)
		return nil
	}
}

func tlsFlood(command string) func(addr string) error {
	return func(addr string) error {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		flood(c, command)
		return nil
	}
}

func flood(c net.Conn, command string) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	go func() {
		for {
			if _, err := io.WriteString(c, command); err != nil {
				return
			}
		}
	}()
}

// again returns an attack that repeats the given one for ever, also after an error.
func again(once func(addr string) error) func(addr string) error {
	return func(addr string) error {
		go func() {
			for {
				_ = once(addr)
			}
		}()
		return nil
	}
}

// unread sends commands with long replies, and reads none. It reconnects whenever the server
// disconnects it.
func unread(addr string) error {
	batch := strings.Repeat(words("ECHO", strings.Repeat("x", 32<<10)), 8)
	return again(func(addr string) error {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		defer c.reset()
		_ = c.SetReadBuffer(4 << 10)
		for err == nil {
			err = c.send(batch)
		}
		return err
	})(addr)
}

// stuckSubscriber publishes without pause to a thousand subscribers. One of them reads nothing, and
// reconnects whenever the server disconnects it.
func stuckSubscriber(addr string) error {
	for range 999 {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		if _, err := c.ask(words("SUBSCRIBE", "news")); err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, c.in) }()
	}
	_ = again(func(addr string) error {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		defer c.reset()
		_ = c.SetReadBuffer(4 << 10)
		if _, err := c.ask(words("SUBSCRIBE", "news")); err != nil {
			return err
		}
		for err == nil { // until the server disconnects this subscriber
			time.Sleep(10 * time.Millisecond)
			err = c.send("PING\r\n")
		}
		return err
	})(addr)
	return floods(words("PUBLISH", "news", strings.Repeat("x", 50)))(addr)
}

var hugeNames = func() string {
	huge := strings.Repeat("x", 64<<10)
	return words("SIMBA.ACQUIRE", huge, "c", 1000) + words("SIMBA.ACQUIRE", "m", huge, 1000) + words("SUBSCRIBE", huge) + words("KEYS", huge)
}()

// guess tries passwords. It reconnects whenever the server disconnects it.
func guess(addr string) error {
	return again(func(addr string) error {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		defer c.reset()
		for err == nil {
			_, err = c.ask(words("AUTH", "default", "guess"))
		}
		return err
	})(addr)
}

func ask(addr, commands string, lines int) error {
	c, err := dialRaw(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() { _ = c.send(commands) }()
	in := bufio.NewReader(c)
	for range lines {
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

func mutexes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(words("SET", fmt.Sprint("held", i), "c", "PX", 3_600_000))
	}
	return b.String()
}

// idle refers to the unused connections. Otherwise the garbage collector would close them.
var idle []*raw

func crowd(n int, addr string) error {
	for range n {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		idle = append(idle, c)
	}
	return nil
}

func byteByByte(addr string) error {
	if err := crowd(1000, addr); err != nil {
		return err
	}
	conns := idle
	go func() {
		for i := 0; ; i++ {
			_ = conns[i%len(conns)].send("x") // part of an endless line
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return nil
}

func churn(addr string) error {
	for range 4 {
		go func() {
			for {
				if c, err := dialRaw(addr); err == nil {
					_, _ = c.ask("PING\r\n")
					c.reset()
				}
			}
		}()
	}
	return nil
}

func patterns(addr string) error {
	c, err := dialRaw(addr)
	if err != nil {
		return err
	}
	for i := range 10 {
		args := []any{"PSUBSCRIBE"}
		for j := range 1000 {
			args = append(args, fmt.Sprintf("simba:{other%d}*", i*1000+j))
		}
		if err := c.send(words(args...)); err != nil {
			return err
		}
	}
	for range 10_000 * 6 { // each subscription is confirmed with six lines
		if _, err := c.line(); err != nil {
			return err
		}
	}
	go func() { _, _ = io.Copy(io.Discard, c.in) }()
	return nil
}
