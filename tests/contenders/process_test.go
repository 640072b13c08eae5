package contenders

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// contender is a contender in its own process. contend/main.go describes its output.
type contender struct {
	*simbatest.Process
	id string
}

func launch(t testing.TB, addr, mutex, id string, ttl, transition time.Duration) *contender {
	t.Helper()
	p := simbatest.Run(t, simbatest.Build(t, "tests/contenders/contend"),
		"--addr", addr, "--mutex", mutex, "--id", id, "--ttl", ttl.String(), "--transition", transition.String())
	return &contender{p, id}
}

// line is a line of a contender's output.
type line struct {
	at    time.Duration // on the machine's monotonic clock
	word  string
	token uint64 // 0 if the line has none
}

// lines returns the output of the contender. While its process runs, the last line may be missing.
func (c *contender) lines(t testing.TB) (all []line) {
	t.Helper()
	for text := range strings.Lines(c.Output()) {
		l, ok := parse(strings.Fields(text))
		if !ok {
			t.Errorf("%s writes the invalid line %q", c.id, text)
			continue
		}
		all = append(all, l)
	}
	return all
}

func parse(f []string) (l line, ok bool) {
	if len(f) < 2 || len(f) > 3 {
		return l, false
	}
	at, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return l, false
	}
	l.at, l.word = time.Duration(at), f[1]
	if len(f) == 3 {
		l.token, err = strconv.ParseUint(f[2], 10, 64)
	}
	return l, err == nil
}

// tenures adds the tenures in the contender's output.
func (c *contender) tenures(t testing.TB, noted *tenures.Log) {
	t.Helper()
	var own tenures.Tenure // the present tenure
	for _, l := range c.lines(t) {
		if l.word != "owned" {
			continue
		}
		if l.token != own.Token {
			if own.Token != 0 {
				noted.Add(own)
			}
			own = tenures.Tenure{Owner: c.id, Token: l.token, From: l.at}
		}
		own.To = l.at
	}
	if own.Token != 0 {
		noted.Add(own)
	}
}
