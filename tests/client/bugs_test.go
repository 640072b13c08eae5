package clienttest

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

func TestSeededBugsOfWaitsAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	for _, bug := range bugs.Names(t) {
		if strings.HasPrefix(bug, "wait-") {
			t.Run(bug, func(t *testing.T) {
				const test = "TestWaitsUnderFaults"
				out, err := bugs.Go(t, bug, "test", "-count", "1", "-vet", "off", "-timeout", "30m", "-run", "^"+test+"$", "./tests/client", "-seeds", "1000")
				if err == nil || !strings.Contains(out, "--- FAIL: "+test+"/") || strings.Contains(out, "panic: ") {
					t.Errorf("go test ends with %v, want a failure of %s:\n%s", err, test, out)
				}
			})
		}
	}
}
