// Package backendtest is the conformance suite that every engine runs, the embedded one too. It
// tests the rules of the design (section 4), each command and status, and what must hold when the
// store is cut off and returns.
//
//	func TestConformance(t *testing.T) {
//		store := stores.Redis(t)
//		link := stores.NewLink(t, store.Addr)
//		backendtest.Run(t, backendtest.Engine{
//			Name: "redis", Shared: true, Link: link,
//			Open: open,
//		})
//	}
//
//	Run ─▶ rule (a subtest) ─▶ testCase ─▶ server (a Backend) ─▶ Link ─▶ the store
//	                                           └─▶ broker: the notices that the server publishes
//
// Each rule is a subtest, and its name states the rule. Rules run in real time. A rule waits for
// what must happen, however long a slow machine takes. What must not happen it checks by the times
// at which requests were sent and answered.
//
// The table Promises says what an engine does not keep, or keeps only on a condition. The table in
// the documentation is generated from it. A rule that an engine does not keep is skipped, with the
// reason.
package backendtest
