// Package backendtest is the one suite of rules that every engine is held to, the
// embedded one too: the rules of the design (section 4), each command and status, and
// what must hold when the store is cut off and comes back.
//
//	func TestConformance(t *testing.T) {
//		store := stores.Redis(t)
//		link := stores.NewLink(t, store.Addr)
//		backendtest.Run(t, backendtest.Engine{
//			Name: "redis", Shared: true, Link: link,
//			Open: func(t testing.TB, n simba.Notices, timeout time.Duration) backendtest.Backend { … },
//		})
//	}
//
// A rule is a subtest, and its name is the rule in words. It runs in real time: it
// waits for what must happen, however long a slow machine takes, and judges what must
// not happen by the instants at which requests were sent and answered.
//
// What an engine cannot keep, or only on a condition, stands in one table, Promises,
// from which the documentation's table is made. A rule that an engine does not keep is
// not asserted; it is skipped, with the reason.
package backendtest
