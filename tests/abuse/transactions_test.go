package abuse

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestATransactionsQueueIsBounded(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	conns := v.raws(20)
	deep := strings.Repeat(words("PING"), 10_001)
	wide := strings.Repeat(words("ECHO", strings.Repeat("x", 64<<10)), 130) // 8.1 MiB
	queued := make(chan error, len(conns))
	for i, c := range conns {
		go func() {
			flood, n := deep, 10_001
			if i%2 == 0 {
				flood, n = wide, 130
			}
			sent := make(chan error, 1)
			go func() { sent <- c.send("MULTI\r\n" + flood) }()
			last := ""
			for range 1 + n {
				line, err := c.line()
				if err != nil {
					queued <- err
					return
				}
				last = line
			}
			if !strings.HasPrefix(last, "-ERR transaction too large") {
				queued <- fmt.Errorf("the reply to the last of %d commands is %q, want the error that the transaction is too large", n, last)
				return
			}
			queued <- <-sent
		}()
	}
	for range conns {
		if err := <-queued; err != nil {
			t.Error(err)
		}
	}
	v.servesOthers()
	v.costsAtMost(len(conns)*9<<20 + 64<<20) // with 64 MiB for garbage
	for _, c := range conns[:len(conns)/2] {
		if line, err := c.ask("EXEC\r\n"); err != nil || !strings.HasPrefix(line, "-EXECABORT") {
			t.Errorf("EXEC returns %q, %v, want EXECABORT", line, err)
		}
	}
	hangUp(conns)
	v.recovers()
}

func TestRepliesOfATransactionAreBounded(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	conns := v.raws(4)
	err := v.each(len(conns), func(i int) error {
		c := conns[i]
		if err := c.send("CLIENT REPLY OFF\r\nMULTI\r\n" + strings.Repeat("COMMAND DOCS\r\n", 1000) + "EXEC\r\nCLIENT REPLY ON\r\nPING\r\n"); err != nil {
			return err
		}
		for { // replies are off, so the first one is that to PING
			line, err := c.line()
			if err != nil || line == "+PONG" {
				return err
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	v.servesOthers()
	// The replies have 16 MiB. While the buffer grows, they exist twice, and twice more as garbage.
	v.costsAtMost(len(conns)*64<<20 + 32<<20)
	hangUp(conns)
	v.recovers()
}

func TestTheKeysThatConnectionsWatchAreBounded(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	conns := v.raws(100)
	if err := v.each(len(conns), func(i int) error {
		c := conns[i]
		keys := []any{"WATCH", "wanted"}
		for k := range 999 {
			keys = append(keys, fmt.Sprintf("watched%d:%d", i, k))
		}
		if line, err := c.ask(words(keys...)); err != nil || line != "+OK" {
			return fmt.Errorf("WATCH returns %q, %w", line, err)
		}
		line, err := c.ask(words("WATCH", "one more"))
		if err == nil && !strings.HasPrefix(line, "-ERR too many watched keys") {
			err = fmt.Errorf("the reply to WATCH of key 1,001 is %q, want an error", line)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	v.servesOthers() // the bystanders change the watched key "wanted"
	if line, err := conns[0].ask("MULTI\r\n"); err != nil || line != "+OK" {
		t.Errorf("MULTI returns %q, %v, want OK", line, err)
	}
	if line, err := conns[0].ask("EXEC\r\n"); err != nil || line != "*-1" {
		t.Errorf("EXEC after a change of a watched key returns %q, %v, want null", line, err)
	}
	v.costsAtMost(len(conns) * 1000 * 2 << 10)
	hangUp(conns)
	v.recovers()
}

func TestManyKeysInOneStepDelayNoOtherClient(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	c := v.raw()
	go func() { _, _ = io.Copy(io.Discard, c.in) }()
	var all strings.Builder
	all.WriteString("MULTI\r\n")
	for i := range 1000 {
		all.WriteString(words("SET", fmt.Sprint("key", i), strings.Repeat("v", 100), "PX", 600_000))
	}
	all.WriteString("EXEC\r\n")
	for range 20 {
		if err := c.send(all.String()); err != nil {
			t.Fatal(err)
		}
	}
	v.servesOthers()
	v.costsAtMost(64 << 20)
	c.Close()
	v.recovers()
}
