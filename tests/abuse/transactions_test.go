package abuse

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

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
		simbatest.Must(t, c.send(all.String()))
	}
	v.servesOthers()
	v.costsAtMost(64 << 20)
	c.Close()
	v.recovers()
}
