package backendtest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Recovery is how soon after an outage of its store a server serves every client again. That takes
// a second or two. The rest is for a busy machine, which may stop the server and the store for some
// seconds.
const Recovery = 10 * time.Second

// Promise is one line of the documentation's table: a rule, and how far each engine keeps it.
type Promise struct {
	ID   string // a number or a word; rules name their promise by it
	Rule string

	Embedded, Redis, MySQL, ZooKeeper Keeping

	Tests Tests // besides the rules of the suite
}

// Tests names, for each engine, tests of a promise that the suite cannot run on every engine. Such
// tests kill a store or set a clock. A name is the folder, a dot, and the function:
// "persist.TestX".
type Tests struct{ Embedded, Redis, MySQL, ZooKeeper []string }

// Keeping says how far an engine keeps a promise. The zero value is Kept.
type Keeping struct {
	state state
	text  string
}

type state uint8

const (
	kept state = iota
	keptIf
	notKept
	notApplicable
)

// Kept is a promise that the engine keeps.
var Kept = Keeping{}

// KeptIf is a promise that the engine keeps on a condition. The text ends the sentence "kept if".
func KeptIf(text string) Keeping { return Keeping{keptIf, text} }

// NotKept is a promise that the engine does not keep. The text says what the engine does instead.
func NotKept(text string) Keeping { return Keeping{notKept, text} }

// NotApplicable is a promise without a meaning for the engine. The text says why.
func NotApplicable(text string) Keeping { return Keeping{notApplicable, text} }

func (k Keeping) String() string {
	switch k.state {
	case notApplicable:
		return "–"
	case keptIf:
		return "kept if " + k.text
	case notKept:
		return "**not kept**: " + k.text
	}
	return "kept"
}

// of returns how an engine, by Engine.Name, keeps the promise.
func (p Promise) of(engine string) Keeping {
	return column(engine, p.Embedded, p.Redis, p.MySQL, p.ZooKeeper)
}

// of returns the tests of an engine.
func (t Tests) of(engine string) []string {
	return column(engine, t.Embedded, t.Redis, t.MySQL, t.ZooKeeper)
}

// column returns the value for an engine, by Engine.Name.
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

// These conditions apply to several promises.
const (
	redisDurable = "Redis has `appendonly yes` and `appendfsync always`, and does not fail over. A promoted replica may lack the last writes"
	mysqlDurable = "the database has `innodb_flush_log_at_trx_commit=1` and `sync_binlog=1`, and does not fail over to an asynchronous replica. With Galera, all servers must write to one node"
	sessionLives = "the server's session lives. The leases that a server granted end when the server stops, or when it is cut off for two thirds of the session timeout"
	diskKept     = "there is no lost directory, no faulty disk, no older copy or backup, no cloned or restored machine"
)

// tenThousand is the test of the promise history for all engines with a store.
const tenThousand = "backends/proxy.TestEventLogKeepsDocumentedHistory"

var (
	singleServer = NotApplicable("a single server owns the data")
	noStore      = NotApplicable("there is no separate store")

	unknownStart = NotKept("`since` is null. The store has only the start of the present lease")
)

// Promises lists all promises, and how far each engine keeps them.
var Promises = []Promise{
	{
		ID: "1", Rule: "At most one owner. Before `transition_at`, only RELEASE, BREAK or the end of a SESSION ends a lease",
		Embedded: KeptIf(diskKept + ". In `memory` it is not kept"),
		Redis:    KeptIf(redisDurable + ". Also, Redis must evict no keys (`maxmemory-policy noeviction`)"), MySQL: KeptIf(mysqlDurable), ZooKeeper: KeptIf(sessionLives),
	},
	{ID: "2", Rule: "`ttl_at = acquired_at + ttl`, `transition_at = ttl_at + transition`"},
	{
		ID: "since", Rule: "`since` of SIMBA.OWNER is the start of the tenure",
		Redis: unknownStart, MySQL: unknownStart, ZooKeeper: unknownStart,
	},
	{
		ID: "3", Rule: "GUARD never creates or revives a tenure; a renewal sets both windows, longer or shorter",
		ZooKeeper: KeptIf("the ensemble's clocks agree, nobody sets them, and the last renewal was through the server that granted the lease. Otherwise a lease that runs by that server's clock may be over by the others' clocks. Other servers can then report its end, and the granting server can renew it afterwards. Also, a server that has lost its session can publish the end of a lease before the ensemble ends the session. In between, another server can renew the lease. No reply reports such an end"),
	},
	{
		ID: "4", Rule: "Tokens grow from tenure to tenure, and stay the same for a whole tenure",
		Embedded:  KeptIf(diskKept + ". In `memory`, the wall clock must not be set back either"),
		Redis:     KeptIf("Redis' clock is past the token of every grant that Redis has lost. So nobody may set the clock back. With replicas, the nodes' clocks must agree: a promoted replica's clock must not lag by more than the failover takes. An owner of Simba up to 3.2 takes no token itself. Two of its tenures have the same token if no server saw the mutex between the two"),
		MySQL:     KeptIf("no row of the table is deleted, the column `fencing_token` is not dropped, and no failover loses a row's last change. Without the column, a JVM owner's token changes with each renewal. With the column, some JVM owners take no token themselves. Such an owner can have the token of the JVM owner before it, until a server that knows the earlier owner reads the row. [Tokens on MySQL](../explanation/stores.md#tokens-on-mysql) has the other cases: a restart of a server, Simba's own migration, and every millionth tenure"),
		ZooKeeper: KeptIf("the ensemble's data is not deleted"),
	},
	{ID: "4t", Rule: "With TOKEN, GUARD and RELEASE act only on that tenure"},
	{
		ID: "5", Rule: "No reply or notice before its change is durable",
		Embedded: KeptIf("the server runs with `--durability always`, and the disk keeps what it has synced. `async` may lose changes in a crash, but then delays new grants until the lost leases have ended. `memory` loses all"),
		Redis:    KeptIf(redisDurable), MySQL: KeptIf(mysqlDurable), ZooKeeper: KeptIf("`forceSync=yes`, ZooKeeper's default"),
		Tests: Tests{
			Embedded: []string{
				"engine.TestWithFsyncHeldBackNobodyCanSeeAGrant", "tests/crash.TestCrashLosesNothingAcknowledged", "tests/crash.TestKillLosesNothingAcknowledged",
				"tests/crash.TestKillLosesNothingThatAsyncPromises", "tests/simulation.TestSimulation",
			},
			Redis: []string{
				"backends/redis.TestCrashOfSyncingRedisLosesNothingAcknowledged", "backends/redis.TestCrashOfSyncingRedisMakesNoTwoOwners",
			},
			MySQL:     []string{"backends/mysql.TestDatabaseCrashLosesNothingAcknowledged", "backends/mysql.TestNoTwoOwnersWhileTheDatabaseIsKilled"},
			ZooKeeper: []string{"backends/zookeeper.TestEnsembleCrashLosesNothingAcknowledged", "backends/zookeeper.TestKillingTheLeaderNeverMakesTwoOwners"},
		},
	},
	{ID: "6", Rule: "A lease is counted from the grant; the server skips a waiter that disconnects before the reply"},
	{ID: "7", Rule: "First come, first served among the waiters of one server"},
	{
		ID: "7s", Rule: "First come, first served among the waiters of all servers", Embedded: singleServer,
		MySQL: NotKept("the table has no queue, so the first server to read the row gets the mutex"),
	},
	{ID: "8", Rule: "No lost wake-up: after a release, an expiry or a BREAK, a blocked waiter gets the mutex without asking again"},
	{
		ID: "8s", Rule: "No lost wake-up after a release through another server", Embedded: singleServer,
		MySQL: KeptIf("`--mysql-poll` is set. Otherwise the waiter's server reads the row again up to 1 s after the end of the lease that it saw last"),
	},
	{ID: "9", Rule: "Queue entries of waiters that are gone are removed"},
	{
		ID: "9s", Rule: "Waiters of a crashed server delay nobody", Embedded: singleServer,
		ZooKeeper: KeptIf("the session timeout has passed since the crash. An orderly stop removes the server's waiters"),
	},
	{
		ID: "10", Rule: "A clock step neither extends nor cuts a lease, and a restart never shortens one",
		Embedded:  KeptIf(diskKept + ". In `memory` it is not kept"),
		Redis:     KeptIf("Redis' wall clock is not set, since Redis expires keys by it. A lease also runs out while Redis is down"),
		MySQL:     KeptIf("the database's wall clock is not set. A lease also runs out while the database is down"),
		ZooKeeper: KeptIf("the server is not restarted. Otherwise the leases that it granted end with its session, at the latest after the session timeout. A lease ends by the clock of the server that granted it, but other servers report its end by the leader's clock"),
		Tests: Tests{
			Embedded: []string{
				"engine.TestAStepOfTheWallClockNeitherCutsNorExtendsALease", "engine.TestRecoveredLeaseKeepsItsRemainingTime",
				"persist.TestALeaseOfTheSameBootIsAsItWas", "persist.TestAfterARebootLeasesBeginAnew", "tests/simulation.TestSimulation",
			},
			Redis: []string{
				"backends/redis.TestWrongClockEstimateMovesNoLease",
				"backends/redis.TestCrashOfSyncingRedisLosesNothingAcknowledged",
			},
			MySQL: []string{
				"backends/mysql.TestDatabaseClockStepIsNoticed",
				"backends/mysql.TestLeaseSurvivesADatabaseRestart", "backends/mysql.TestDatabaseCrashLosesNothingAcknowledged",
			},
			ZooKeeper: []string{
				"backends/zookeeper.TestNoLeaseDependsOnTheEnsemblesClock", "backends/zookeeper.TestCountingServerMayRenewALeaseEndedByAnotherClock",
				"backends/zookeeper.TestEnsembleCrashLosesNothingAcknowledged",
			},
		},
	},
	{
		ID: "10s", Rule: "A lease outlives the server that granted it", Embedded: KeptIf("the server restarts on the same data directory; `memory` has no directory"),
		ZooKeeper: KeptIf("the lease ends before the session timeout. The leases that a server granted end with its session"),
		Tests:     Tests{Embedded: []string{"tests/contenders.TestATenureSurvivesACrashOfTheServer", "tests/crash.TestKillLosesNothingAcknowledged"}},
	},
	{
		ID: "retry", Rule: "A request is safe to repeat: ACQUIRE by the owner renews with the same token, a waiter keeps its queue entry",
		Embedded: KeptIf("the server does not restart in between, or runs with `always`. During the recovery delay of `async`, an owner must renew by GUARD, since its ACQUIRE is queued. In `memory` a restart forgets the owner. No mode stores the queue"),
	},
	{
		ID: "retry-s", Rule: "A request is safe to repeat through another server", Embedded: singleServer,
		ZooKeeper: KeptIf("the server that received the first request still runs. The tenure ends with that server's session"),
	},
	{
		ID: "reconnect-s", Rule: "A waiter that reconnects to another server keeps its queue entry", Embedded: singleServer,
		MySQL:     NotKept("each server has a queue of its own"),
		ZooKeeper: KeptIf("the waiter's first server still runs. The entry is a node of that server's session"),
	},
	{ID: "session", Rule: "SESSION: the mutex is released when the connection closes"},
	{ID: "reservation", Rule: "A reachable polling waiter is notified by `released@@…`; the mutex stays reserved for that waiter during the handoff window"},
	{
		ID: "reservation-s", Rule: "The reservation holds for the clients of other servers too", Embedded: singleServer,
		MySQL: NotKept("the reservation holds for the clients of one server. Clients of other servers can take the mutex"),
	},
	{ID: "next-waiter", Rule: "If a waiter misses or gives up its reservation, or cannot be reached, the reservation goes to the next waiter"},
	{
		ID: "unreachable", Rule: "An unreachable polling waiter is skipped and keeps its queue entry until the entry expires",
		ZooKeeper: NotKept("the waiter keeps its entry only until another contender asks. Then it must leave, since the first node in ZooKeeper is the owner's"),
	},
	{
		ID: "window-0", Rule: "`--handoff-window 0` reserves nothing",
	},
	{ID: "broken", Rule: "A blocked waiter whose connection breaks stays in the queue as a polling waiter"},
	{ID: "notices", Rule: "`acquired@@…` for each tenure. `released@@…` to the next polling waiter; if no waiter is next, to all, except after an expiry. JSON for each change"},
	{
		ID: "notices-s", Rule: "Clients get notices of changes by other servers", Embedded: singleServer,
		MySQL:     KeptIf("the server reads the row between the changes; set `--mysql-poll`. A notice comes with the next read. The server misses a tenure that begins and ends between two reads. Without `fencing_token`, a release and a new tenure of the same owner between two reads look like a renewal"),
		ZooKeeper: KeptIf("the tenure is not too short: a server can miss a tenure of some milliseconds"),
	},
	{
		ID: "queue-s", Rule: "SIMBA.QUEUE lists the waiters of all servers", Embedded: singleServer,
		MySQL: NotKept("the reply lists the waiters of the server that received the command"),
	},
	{
		ID: "history", Rule: "SIMBA.HISTORY has the last 10,000 events that the server caused or observed, in the order in which it learned of them",
		Tests: Tests{
			Embedded: []string{"tests/clients.TestTheHistoryHasTheLastTenThousandEvents"}, Redis: []string{tenThousand},
			MySQL: []string{tenThousand}, ZooKeeper: []string{tenThousand},
		},
	},
	{ID: "scan", Rule: "SIMBA.SCAN has the guarantees of Redis' SCAN"},
	{
		ID: "names", Rule: "Every name within the limits is accepted, and different names are never confused",
		MySQL: KeptIf("the table is the engine's own. Simba's table holds 66 characters for a mutex and 32 for a contender. If that table's collation equates two names, the server refuses the second one"),
	},
	{
		ID: "outage", Rule: fmt.Sprintf("If the store cannot be reached: `-TRYAGAIN` within the timeout, recovery within %.0f s, waiters keep waiting", Recovery.Seconds()),
		Embedded:  noStore,
		ZooKeeper: KeptIf("the outage is shorter than two thirds of the session timeout. Otherwise the server's leases have ended, and blocked waiters are queued again. Subscribed polling waiters get a notice to ask again. The server's mutexes are available again when the ensemble has ended the session"),
	},
	{
		ID: "refused", Rule: "If an operator must repair the store: `-ERR engine … misconfigured: …`, also for blocked waiters; after the repair, requests succeed",
		Embedded: noStore,
	},
	{
		ID: "lost", Rule: "After a lost reply, the retry gets the same tenure",
		Embedded: noStore,
	},
	{
		ID: "close", Rule: "A stopped server leaves nothing behind, replies to nothing and publishes nothing",
	},
}
