// Package conformance is the conformance suite of all engines, also of the embedded one. It tests
// the Promises, each command and status, and outages of the store.
//
//	func TestConformance(t *testing.T) {
//		store := stores.Redis(t)
//		link := stores.NewLink(t, store.Addr)
//		conformance.Run(t, conformance.Engine{
//			Name: "redis", Shared: true, Link: link,
//			Open: open,
//		})
//	}
//
//	Run ─▶ rule (a subtest) ─▶ testCase ─▶ server (a Backend) ─▶ Link ─▶ the store
//	                                           └─▶ broker: the notices that the server publishes
//
// Each rule is a subtest, and its name states the rule. Rules run in real time. If an event must
// happen, the rule waits for the event, however long a slow machine takes. If an event must not
// happen too early, the rule compares the times of its requests and their replies.
//
// The PromisesFile of an engine names the promises that the engine does not keep, or keeps only on
// a condition. Run skips the rules of a promise that the engine does not keep, and logs the reason.
// The table in the documentation is generated from these files.
package conformance
