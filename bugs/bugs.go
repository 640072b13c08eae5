// Package bugs holds switches for bugs that were put into the server on purpose:
// a test that never fails proves nothing, and this is how the tests are tested.
//
// Each Bug is a mistake that someone who maintains the server could really make:
// one if, at the place where it would be made. tests/simulation turns on one after
// the other, and each must be found, as a breach of the very rule that it breaks; and
// tests/chaos some of them in a real server, which clients must notice. One that the
// simulation seldom meets is found by the tests of its package.
//
//	make bugs                                             every bug, by the simulation; some by chaos
//	SIMBA_BUG=late-expiry go test -tags bugs ./engine     one, by other tests
//
// Without the build tag "bugs", On is the constant false: the compiler removes
// the mistakes, and neither they nor this package are in the server. A build with
// the tag is for tests only.
package bugs

// Bug is a mistake that can be turned on. The zero value is none.
type Bug uint8

// The bugs, each with what the server does then.
const (
	None Bug = iota

	// ReplyBeforeFsync: a connection sends its replies, and only then waits for what
	// they rest on.
	ReplyBeforeFsync
	// FsyncSkipped: a commit is written, not synced.
	FsyncSkipped
	// NoticeBeforeDurable: a notice goes out with the next batch of anyone, whether
	// or not what it tells of is on disk.
	NoticeBeforeDurable
	// FreeBeforeDurable: OWNER says that a mutex is free while its release can still
	// be undone by a crash.
	FreeBeforeDurable
	// TokenReset: after a restart, tokens begin anew at 1.
	TokenReset
	// DoubleGrantOnRetry: the owner that asks again gets a new tenure.
	DoubleGrantOnRetry
	// ReleaseWithoutTokenCheck: RELEASE … TOKEN n ends whatever tenure the contender
	// has.
	ReleaseWithoutTokenCheck
	// GuardRevives: GUARD of a mutex that is free begins a tenure.
	GuardRevives
	// RenewalKeepsWindows: GUARD begins the windows anew, as long as they were before,
	// whatever it asks for.
	RenewalKeepsWindows
	// FirstWindowsStay: who waits and asks anew is granted the windows of its first request.
	FirstWindowsStay
	// EarlyExpiry: the lease ends with its TTL window, the transition window is not
	// waited for.
	EarlyExpiry
	// LateExpiry: the end of a lease is looked for ten times a second, so who waits gets
	// the mutex too late.
	LateExpiry
	// ClockStepHonoured: leases are measured by the wall clock.
	ClockStepHonoured
	// RestartCutsLeases: after a reboot, the instants that were stored on the earlier
	// boot are read as if they were of this one.
	RestartCutsLeases
	// GrantInQuietTime: after an unclean stop in async, mutexes are granted at once.
	GrantInQuietTime
	// LostWakeUp: a release hands on to those who poll, and passes over those who block.
	LostWakeUp
	// ReservationNeverEnds: the turn of a polling waiter that does not come begins anew
	// when it ends.
	ReservationNeverEnds
	// LastComeFirstServed: of those who wait, the last is the next.
	LastComeFirstServed
	// GrantToTheDead: a waiter whose connection broke stays in the queue as if it were
	// open, and is granted the mutex.
	GrantToTheDead
	// DeadKeepsGrant: a waiter that died between being chosen and being told keeps
	// the mutex for a whole lease.
	DeadKeepsGrant
	// QueueLeak: the queue never forgets a waiter whose connection broke.
	QueueLeak
	// SessionKeepsLease: the end of a connection releases nothing of its SESSION.
	SessionKeepsLease
	// TurnNamesTheNext: the notice of a turn names whose turn it is, not who had the mutex.
	TurnNamesTheNext
	// FaultNotFatal: a failed write or fsync is taken for one of the start. The store
	// refuses from then on, and the process does not end.
	FaultNotFatal
	// OldWaitForgotten: a contender waits on a new connection, and the old one is never
	// answered.
	OldWaitForgotten
	// UntoldForgotten: who was granted a lease that ran out before it could be told waits no more.
	UntoldForgotten
	// SegmentReleasedEarly: a segment of the journal is used again before the checkpoint has
	// its records durably.
	SegmentReleasedEarly
	// TornRecordAccepted: recovery takes a record of which a part was never written.
	TornRecordAccepted
	// ReplayOutOfOrder: of the changes of a mutex, the checkpoint keeps an earlier one.
	ReplayOutOfOrder
	// LostUpdate: EXEC does not see that a watched key has changed.
	LostUpdate
)
