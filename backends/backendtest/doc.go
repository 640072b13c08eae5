// Package backendtest is the conformance suite that every engine runs, the embedded one too. It
// tests the promises of the table Promises, and each command and status. It also tests what must
// hold when the store is cut off and returns.
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
// Each rule is a subtest, and its name states the rule. Rules run in real time. If something must
// happen, a rule waits for it, however long a slow machine takes. If something must not happen, a
// rule checks that by the times of its requests and their answers.
//
// The table Promises says which promises an engine does not keep, or keeps only on a condition. The
// table in the documentation is generated from it. A rule of a promise that the engine does not
// keep is skipped, with the reason.
package backendtest
