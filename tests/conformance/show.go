package conformance

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

// checkLeft checks got, the rest of a window in a reply. The window has the length d, and began
// between sent and now. A server that estimates the clock of its store may promise less.
func (tc *testCase) checkLeft(what string, got, d time.Duration, sent time.Time) {
	tc.t.Helper()
	const estimate = 50 * ms
	if least := d - time.Since(sent) - estimate; got > d || got < least {
		tc.t.Errorf("%s: %v left of %v; want from %v to %v", what, got, d, least, d)
	}
}
