package backendtest

import (
	"strings"
	"testing"
)

// Promise is one line of the documentation's table: a rule, and how far each engine
// keeps it.
type Promise struct {
	ID   string // by which the suite's subtests name it: the number of the rule in the design, or a word
	Rule string

	Embedded, Redis, MySQL, ZooKeeper Keeping

	Tests Tests // what the suite cannot do to every engine
}

// Tests names, for each engine, tests that attack a promise beside the suite: what kills a store or sets a clock is another
// thing on each. A name is that of the folder, a dot, and the function's: "persist.TestX".
type Tests struct{ Embedded, Redis, MySQL, ZooKeeper []string }

// Keeping is how far an engine keeps a rule. The zero Keeping is Kept.
type Keeping struct {
	state state
	text  string
}

type state uint8

const (
	kept state = iota
	keptIf
	notKept
	moot
)

// Kept is a rule that an engine keeps.
var Kept = Keeping{}

// KeptIf is a rule that an engine keeps on a condition; text ends the sentence "kept
// if".
func KeptIf(text string) Keeping { return Keeping{keptIf, text} }

// NotKept is a rule that an engine does not keep; text says what it does instead.
func NotKept(text string) Keeping { return Keeping{notKept, text} }

// Moot is a rule that says nothing to an engine; text says why.
func Moot(text string) Keeping { return Keeping{moot, text} }

func (k Keeping) String() string {
	switch k.state {
	case moot:
		return "–"
	case keptIf:
		return "kept if " + k.text
	case notKept:
		return "**not kept**: " + k.text
	}
	return "kept"
}

// of returns what an engine, by Engine.Name, makes of the promise.
func (p Promise) of(engine string) Keeping {
	return column(engine, p.Embedded, p.Redis, p.MySQL, p.ZooKeeper)
}

// of returns the tests of an engine.
func (t Tests) of(engine string) []string {
	return column(engine, t.Embedded, t.Redis, t.MySQL, t.ZooKeeper)
}

// column returns what is about an engine, by Engine.Name.
func column[T any](engine string, embedded, redis, mysql, zookeeper T) T {
	name, _, _ := strings.Cut(engine, "-")
	switch name {
	case "redis":
		return redis
	case "mysql":
		return mysql
	case "zookeeper":
		return zookeeper
	}
	return embedded
}

func promiseOf(t testing.TB, id string) Promise {
	t.Helper()
	for _, p := range Promises {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("there is no promise %q", id)
	return Promise{}
}

// The conditions that come back.
const (
	redisDurable = "`appendfsync always`, and no failover: a replica that takes over may lack the last writes"
	mysqlDurable = "`innodb_flush_log_at_trx_commit=1` and `sync_binlog=1`, and no failover to an asynchronous replica; with Galera, if all servers write to one node"
	sessionLives = "the server's session lives: if the server stops, or is cut off for longer than two thirds of the session timeout, the leases that it granted end"
)

// tenThousand is of all engines with a store.
const tenThousand = "backends/proxy.TestOfEventsTheLastTenThousandAreKept"

var (
	one   = Moot("one server has the data for itself")
	alone = Moot("there is no store beside it")
)

// Promises is what each engine keeps of the design's rules, in its order.
var Promises = []Promise{
	{
		ID: "1", Rule: "At most one owner. It changes inside a lease only by RELEASE, the end of a SESSION, or BREAK; at `transition_at` the lease has ended",
		Redis: KeptIf(redisDurable + "; and nothing is evicted (`maxmemory-policy noeviction`)"), MySQL: KeptIf(mysqlDurable), ZooKeeper: KeptIf(sessionLives),
	},
	{ID: "2", Rule: "`ttl_at = acquired_at + ttl`, `transition_at = ttl_at + transition`"},
	{
		ID: "3", Rule: "GUARD never creates or revives a tenure; a renewal sets both windows anew, longer or shorter",
		ZooKeeper: KeptIf("the clocks of the ensemble agree and are not set, and the lease was not renewed last through another server than the one that granted it: that one may renew what others have told to be over, and what it then tells so itself until it does, if by its own clock it is not. What a server pushed to subscribers when it gave its session up may be followed by a renewal elsewhere until that session is over; what it answers is not"),
	},
	{
		ID: "4", Rule: "Tokens grow from tenure to tenure, for ever, and are the same for a whole tenure",
		Redis:     KeptIf("Redis' clock is not set back while its data is lost; a JVM owner up to Simba 3.2 takes no token, so two of its tenures share one if no server saw what lay between them"),
		MySQL:     KeptIf("no row of the table is deleted by hand, and the column `fencing_token` is not dropped; without the column, a JVM owner's token changes with each of its renewals; with it, a JVM owner that takes no token can have that of the JVM owner before it, until a server that saw that one looks; for the tokens of such owners at a start, Simba's own migration and every millionth tenure of JVM owners alone, see [below](#mysql-and-mariadb)"),
		ZooKeeper: KeptIf("the ensemble's data is not deleted"),
	},
	{ID: "4t", Rule: "With TOKEN, GUARD and RELEASE act only on that tenure"},
	{
		ID: "5", Rule: "Nothing is told before it is durable",
		Embedded: KeptIf("`--durability always`; `async` is safe too, since it grants nothing new for a while after a crash"),
		Redis:    KeptIf(redisDurable), MySQL: KeptIf(mysqlDurable), ZooKeeper: KeptIf("`forceSync=yes`, ZooKeeper's default"),
		Tests: Tests{
			Embedded: []string{
				"engine.TestWithFsyncHeldBackNobodyCanSeeAGrant", "tests.TestNothingToldIsLostInACrash", "tests.TestKillLosesNothingThatWasTold",
				"tests.TestKillLosesNothingThatAsyncPromises", "tests/simulation.TestSimulation",
			},
			Redis: []string{
				"backends/redis.TestACrashOfRedisThatSyncsEachWriteLosesNothingThatWasTold", "backends/redis.TestACrashOfRedisThatSyncsEachWriteMakesNoTwoOwners",
			},
			MySQL:     []string{"backends/mysql.TestACrashOfTheDatabaseLosesNothingThatWasTold", "backends/mysql.TestNobodyOwnsAtOnceWhileTheDatabaseIsKilled"},
			ZooKeeper: []string{"backends/zookeeper.TestACrashOfTheEnsembleLosesNothingThatWasTold", "backends/zookeeper.TestKillingTheLeaderNeverMakesTwoOwners"},
		},
	},
	{ID: "6", Rule: "A lease is counted from the grant; a waiter that died before it was told is skipped"},
	{ID: "7", Rule: "First come, first served among the waiters of one server"},
	{
		ID: "7s", Rule: "First come, first served among the waiters of all servers", Embedded: one,
		MySQL: NotKept("the table has no queue: whoever looks first"),
	},
	{ID: "8", Rule: "No lost wake-up: a waiter on an open connection is granted a mutex that is released, expires or is broken, and needs not ask again"},
	{
		ID: "8s", Rule: "The same when it was released through another server", Embedded: one,
		MySQL: KeptIf("`--mysql-poll` is set: else the waiter's server looks again when the lease that it saw would have ended, up to 1 s later"),
	},
	{ID: "9", Rule: "Queue entries of waiters that are gone go too"},
	{
		ID: "9s", Rule: "Nobody waits for the waiters of a server that is gone", Embedded: one,
		ZooKeeper: KeptIf("they may hold it up for the session timeout; a server that is stopped in order takes them along"),
	},
	{
		ID: "10", Rule: "A clock step neither extends nor cuts a lease, and a restart never shortens one",
		Redis:     KeptIf("Redis' wall clock is not set: Redis expires keys by it; a lease goes on ending while Redis is down"),
		MySQL:     KeptIf("the database's wall clock is not set; a lease goes on ending while the database is down"),
		ZooKeeper: KeptIf("the server is not restarted: the leases that it granted end with its session, at the latest after the session timeout; what other servers tell of a lease's end is by the leader's clock, its end is not"),
		Tests: Tests{
			Embedded: []string{
				"engine.TestAStepOfTheWallClockNeitherCutsNorExtendsALease", "engine.TestRecoveredLeaseKeepsItsRemainingTime",
				"persist.TestALeaseOfTheSameBootIsAsItWas", "persist.TestAfterARebootLeasesBeginAnew", "tests/simulation.TestSimulation",
			},
			Redis: []string{
				"backends/redis.TestAWrongIdeaOfRedisClockMovesNoLease",
				"backends/redis.TestACrashOfRedisThatSyncsEachWriteLosesNothingThatWasTold",
			},
			MySQL: []string{
				"backends/mysql.TestAStepOfTheDatabasesClockIsNoticed",
				"backends/mysql.TestALeaseOutlivesARestartOfTheDatabase", "backends/mysql.TestACrashOfTheDatabaseLosesNothingThatWasTold",
			},
			ZooKeeper: []string{
				"backends/zookeeper.TestNoLeaseDependsOnTheEnsemblesClock", "backends/zookeeper.TestWhoCountsALeaseMayRenewItThoughAnotherClockEndedIt",
				"backends/zookeeper.TestACrashOfTheEnsembleLosesNothingThatWasTold",
			},
		},
	},
	{
		ID: "10s", Rule: "A lease outlives the server through which it was granted", Embedded: KeptIf("the server comes back on the same data"),
		ZooKeeper: KeptIf("it ends before the session timeout has passed: what a server granted ends with its session"),
		Tests:     Tests{Embedded: []string{"tests/contenders.TestATenureSurvivesACrashOfTheServer", "tests.TestKillLosesNothingThatWasTold"}},
	},
	{ID: "retry", Rule: "A request may be repeated: ACQUIRE by the owner renews with the same token, a waiter keeps its place"},
	{
		ID: "retry-s", Rule: "A request may be repeated through another server", Embedded: one,
		ZooKeeper: KeptIf("its first server lives: the tenure ends with that server's session"),
	},
	{
		ID: "place-s", Rule: "A waiter that reconnects to another server keeps its place", Embedded: one,
		MySQL:     NotKept("each server has a queue of its own"),
		ZooKeeper: KeptIf("its first server lives: the place is a node of that server's session"),
	},
	{ID: "session", Rule: "SESSION: the mutex is released when the connection closes"},
	{ID: "turn", Rule: "A polling waiter that can be reached is told `released@@…`, and the mutex is kept for it for the handoff window"},
	{
		ID: "turn-s", Rule: "It is kept from the clients of other servers too", Embedded: one,
		MySQL: NotKept("kept among the clients of its own server; others may take it"),
	},
	{ID: "pass", Rule: "A turn that is missed, left or reaches nobody goes to the next in line"},
	{
		ID: "place", Rule: "A polling waiter that cannot be reached is passed over and keeps its place until its entry lapses",
		ZooKeeper: NotKept("it keeps its place only until somebody else asks, since the first node is the owner's"),
	},
	{
		ID: "window-0", Rule: "`--handoff-window 0` is free for all",
	},
	{ID: "broken", Rule: "A blocked waiter whose connection breaks keeps its place as a polling one"},
	{ID: "notices", Rule: "`acquired@@…` for every new tenure; `released@@…` for a waiter's turn, and for all when a mutex is free, not by expiry, and nobody is next; every change as JSON"},
	{
		ID: "notices-s", Rule: "Also for what other servers do", Embedded: one,
		MySQL:     KeptIf("they may come late, when the server looks next (`--mysql-poll`); a tenure that begins and ends between two looks is not seen, and, without `fencing_token`, an owner that releases and acquires again between them is taken to have renewed"),
		ZooKeeper: KeptIf("the tenure lasts: one of some milliseconds may begin and end between two looks"),
	},
	{
		ID: "queue-s", Rule: "SIMBA.QUEUE lists the waiters of all servers", Embedded: one,
		MySQL: NotKept("it lists those of the server that is asked"),
	},
	{
		ID: "history", Rule: "SIMBA.HISTORY has the last 10,000 events that the server did or saw, in the order in which it learnt of them",
		Tests: Tests{
			Embedded: []string{"tests.TestTheHistoryHasTheLastTenThousandEvents"}, Redis: []string{tenThousand},
			MySQL: []string{tenThousand}, ZooKeeper: []string{tenThousand},
		},
	},
	{ID: "scan", Rule: "SIMBA.SCAN has the guarantees of Redis' SCAN"},
	{
		ID: "names", Rule: "Any name that the limits allow, and no two are mixed up",
		MySQL: KeptIf("the table is ours; the seed's takes 66 characters for a mutex and 32 for a contender, and refuses what its collation takes for the same"),
	},
	{
		ID: "outage", Rule: "A store that cannot be reached: `-TRYAGAIN` within the deadline, recovery within 5 s, waiters go on waiting",
		Embedded:  alone,
		ZooKeeper: KeptIf("it is over before two thirds of the session timeout: else its leases have ended, its waiters queue up anew (polling waiters that listen get a notice to do so), and its mutexes are served when the ensemble has ended the session"),
	},
	{
		ID: "refused", Rule: "A store that refuses until an operator mends it: `-ERR engine … misconfigured: …`, which ends waits too, and all goes on when it is mended",
		Embedded: alone,
	},
	{
		ID: "lost", Rule: "A reply that was lost is settled: the retry gets the same tenure",
		Embedded: alone,
	},
	{
		ID: "close", Rule: "A server that stops leaves nothing behind and tells nothing more",
	},
}
