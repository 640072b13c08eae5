package backendtest

import (
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp"
)

// show formats an outcome with the field names of the wire.
func show(o simba.Outcome) string {
	return fmt.Sprintf("status=%v owner=%q token=%d ttl=%v transition=%v position=%d",
		o.Status, o.Owner, o.Token, o.TTL, o.Transition, o.Position)
}

// checkLeft checks got, what a reply says is left of a window. The window has the size d, and began
// between sent and now.
func (tc *testCase) checkLeft(what string, got, d time.Duration, sent time.Time) {
	tc.t.Helper()
	if spent := time.Since(sent); got > d || got < d-spent-rounding {
		tc.t.Errorf("%s: %v left of %v after %v", what, got, d, spent)
	}
}
