package abuse

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestPipelinedWritesAreAnsweredOneByOneAndInOrder(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	const pairs = 25_000
	c := v.raw()
	c.in = bufio.NewReaderSize(c, 1<<20)
	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		sent <- c.send(strings.Repeat(words("SIMBA.ACQUIRE", "flooded", "c", bystanderTTL, "NOQUEUE")+words("SIMBA.RELEASE", "flooded", "c"), pairs))
	}()
	last := 0
	for i := range pairs {
		r, err := c.record()
		if err != nil {
			t.Fatalf("the reply to ACQUIRE %d: %v", i, err)
		}
		token, err := strconv.Atoi(r["token"])
		if err != nil || r["status"] != "acquired" || r["owner"] != "c" || token <= last {
			t.Fatalf("ACQUIRE %d returns %[3]v, want acquired with a token above %[2]d", i, last, r)
		}
		last = token
		if line, err := c.line(); err != nil || line != ":1" {
			t.Fatalf("RELEASE %d returns %q, %v, want 1", i, line, err)
		}
		if i == pairs/2 {
			v.servesOthers()
		}
	}
	t.Logf("the server replied to %d commands in %v", 2*pairs, time.Since(began))
	simbatest.Must(t, <-sent)
	// No reply is left, and the last RELEASE has taken effect.
	if line, err := c.ask(words("SIMBA.OWNER", "flooded")); err != nil || line != "$-1" {
		t.Errorf("after the pipeline SIMBA.OWNER returns %q, %v, want no owner", line, err)
	}
	c.Close()
	v.servesOthers()
	v.costsAtMost(32 << 20)
	v.recovers()
}

func TestConnectionsThatComeAndGoLeaveNothing(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	const n = 20_000
	leave := []string{ // what a client sends before it leaves
		"", "PING\r\n", "*2\r\n$4\r\nECHO\r\n$100\r\nx", "SUBSCRIBE a b c\r\n", "MONITOR\r\n", "MULTI\r\nPING\r\n", "WATCH a b c\r\n",
		"SIMBA.ACQUIRE left c 600000 SESSION\r\n", "SIMBA.ACQUIRE wanted c 1 WAIT 0\r\n", "CLIENT SETNAME x\r\nHELLO 3\r\n",
	}
	err := v.each(n, func(i int) error {
		c, err := dialRaw(v.addr)
		if err != nil {
			return err
		}
		if err := c.send(leave[i%len(leave)]); err != nil {
			return err
		}
		if i%3 == 0 { // the client may leave before the server accepts it
			c.reset()
			return nil
		}
		if err := c.CloseWrite(); err != nil {
			return err
		}
		err = c.ended()
		c.reset() // the client has read everything, so a reset loses nothing
		return err
	})
	simbatest.Must(t, err)
	v.servesOthers()
	v.costsAtMost(32 << 20)
	v.recovers()
	for field, want := range map[string]int{"pubsub_clients": 0, "pubsub_channels": 0, "monitor_clients": 0} {
		if got := v.info(field); got != want {
			t.Errorf("INFO has %s %d, want 0", field, got)
		}
	}
	if owner, err := v.eye.Do("SIMBA.OWNER", "left"); owner != nil || err != nil {
		t.Errorf("SIMBA.OWNER of an ended session's mutex returns %s, %v, want no owner", owner, err)
	}
}

func TestScanStormsDelayNoOtherClient(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	const mutexes = 5_000
	fill(t, v, mutexes)
	stop := make(chan struct{})
	var all sync.WaitGroup
	var conns []*raw
	storms := []string{
		words("SCAN", 0, "COUNT", 10_000), words("SIMBA.SCAN", 0, "MATCH", "*"+strings.Repeat("a*", 100)+"b", "COUNT", 10_000),
		words("KEYS", "*"), words("INFO", "everything"), words("CLIENT", "LIST"), words("SIMBA.HISTORY", "m1", "COUNT", 10_000),
		words("SCAN", 0, "MATCH", "*a*b", "COUNT", 1000),
	}
	for _, command := range storms {
		c := v.raw()
		conns = append(conns, c)
		go func() { _, _ = io.Copy(io.Discard, c.in) }()
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c.send(command) != nil {
					return // after c.reset, or if the server disconnects a slow reader
				}
			}
		})
	}
	v.servesOthers()
	close(stop)
	for _, c := range conns {
		c.reset() // the client may still be sending
	}
	all.Wait()
	v.costsAtMost(128 << 20)
	v.before.heap += mutexes * 1 << 10
	v.recovers()
}

// fill acquires n mutexes.
func fill(t testing.TB, v *victim, n int) {
	t.Helper()
	const pipeline = 1000
	for i := 0; i < n; i += pipeline {
		for j := range pipeline {
			simbatest.Must(t, v.eye.Send("SIMBA.ACQUIRE", fmt.Sprintf("m%d", i+j), "c", bystanderTTL, "NOQUEUE"))
		}
		simbatest.Must(t, v.eye.Flush())
		for range pipeline {
			if r, err := simbatest.ToRecord(v.eye.Receive()); err != nil || r["status"] != "acquired" {
				t.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
			}
		}
	}
}
