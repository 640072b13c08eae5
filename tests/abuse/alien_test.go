package abuse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestRequestsBeyondTheLimitsAreRefused(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	huge := strings.Repeat("x", 64<<10)
	const cut = "-ERR Protocol error: "
	attempts := map[string]string{ // by request: the beginning of the reply
		words("SIMBA.ACQUIRE", huge, "c", 1000):           "-ERR invalid mutex: it has 65536 bytes",
		words("SIMBA.ACQUIRE", "m", huge, 1000):           "-ERR invalid contender: it has 65536 bytes",
		words("SIMBA.BREAK", "m", "REASON", huge):         "-ERR REASON has 65536 bytes",
		words("SUBSCRIBE", huge):                          "-ERR channel has 65536 bytes",
		words("KEYS", huge):                               "-ERR pattern has 65536 bytes",
		words("PUBLISH", "c", strings.Repeat("x", 1<<20)): cut + "invalid bulk length",
		words("ECHO", huge+"x"):                           cut + "invalid bulk length",
		"*2\r\n$4\r\nECHO\r\n$9223372036854775807\r\n":    cut + "invalid bulk length",
		"*9223372036854775807\r\n":                        cut + "invalid multibulk length",
		"*16385\r\n":                                      cut + "invalid multibulk length",
		huge + "xxx":                                      cut + "too big inline request",
		"*1\r\n$" + huge + "xxx":                          cut + "too big bulk count string",
		words("EVAL", "return 1", 0) + words("EVAL", strings.Repeat("x", 1<<20), 0): ":1",
	}
	for attempt, want := range attempts {
		conns := v.raws(20)
		err := v.each(len(conns), func(i int) error {
			got, err := conns[i].ask(attempt)
			if err == nil && !strings.HasPrefix(got, want) {
				err = fmt.Errorf("the reply to %.60q is %.100q", attempt, got)
			}
			if err == nil && strings.HasPrefix(want, cut) {
				err = conns[i].ended()
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		hangUp(conns)
	}
	// Bytes that belong to no protocol.
	for _, garbage := range [][]byte{bytes.Repeat([]byte{0}, 1<<20), bytes.Repeat([]byte("\r\n"), 1<<19), bytes.Repeat([]byte{0xff}, 1<<20)} {
		c := v.raw()
		_ = c.send(string(garbage)) // fails if the server disconnects earlier
		c.Close()
	}
	v.servesOthers()
	v.costsAtMost(48 << 20)
	v.recovers()
}
