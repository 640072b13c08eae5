package conformance

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
	mysqlDurable  = "the database has `innodb_flush_log_at_trx_commit=1` and `sync_binlog=1`, and does not fail over to an asynchronous replica"
	sameTimeout   = "no ZooKeeper session gets a shorter timeout when it reconnects"
	noScripts     = "no script contends with `SET … NX`, and " // on embedded
	noOutsiders   = "no contender of [Simba on the JVM](../guides/simba-jvm.md#who-is-next) contends. If one does, the mutex can be left to it before a waiter's turn"
	outsidersWait = "no contender of Simba on the JVM contends. Otherwise the grant can be [150 ms late](../guides/simba-jvm.md#the-pause-for-contenders-without-a-queue). Each waiting contender of [Simba up to 3.1](../guides/simba-jvm.md#simba-before-302) can delay it by 3.1 s"
	diskKept      = "no disk or file is lost, nobody uses an older copy or a backup, and nobody clones or restores the machine"
)

// tenThousand is the test of the promise history for all engines with a store.
const tenThousand = "backends/proxy.TestEventLogKeepsDocumentedHistory"

var (
	singleServer = NotApplicable("a single server owns the data")
	noStore      = NotApplicable("there is no separate store")

	unknownStart = NotKept("`since` is null")
)

// Promises lists all promises, and how far each engine keeps them.
var Promises = []Promise{
	{
		ID: "1", Rule: "At most one owner. Before `transition_at`, only RELEASE, BREAK or the end of a SESSION ends a lease",
		Embedded: KeptIf(diskKept + ". In `memory` a restart breaks the promise"),
		Redis:    KeptIf("Redis has `appendonly yes`, `appendfsync always` and `maxmemory-policy noeviction`, does not fail over, and nobody deletes its data"), MySQL: KeptIf(mysqlDurable + ", and nobody deletes its data. With Galera, all servers must write to one node"), ZooKeeper: KeptIf(sameTimeout + ", and nobody deletes the ensemble's data"),
	},
	{ID: "2", Rule: "`ttl_at = acquired_at + ttl`, `transition_at = ttl_at + transition`"},
	{
		ID: "since", Rule: "`since` of SIMBA.OWNER is the start of the tenure",
		Redis: unknownStart, MySQL: unknownStart, ZooKeeper: unknownStart,
	},
	{
		ID: "3", Rule: "GUARD never begins or revives a tenure. A renewal begins both windows anew, with the lengths of the request",
		ZooKeeper: KeptIf("the ensemble's clocks agree, nobody sets them, and the last renewal was through the server that granted the lease. Otherwise a lease can be renewed after another server has reported its end. There is one exception: a server that loses its session can publish the end of a lease that another server then renews"),
	},
	{
		ID: "4", Rule: "Tokens grow from tenure to tenure, and stay the same for a whole tenure",
		Embedded:  KeptIf("the disk keeps what it has synced, nobody uses an older copy or a backup, and nobody clones or restores the machine. After the loss of the whole data directory, and in `memory`, another condition is that nobody has set the wall clock back"),
		Redis:     KeptIf("nobody sets Redis' clock back. After a failover, the new primary's clock must not be behind the old one's by more than the failover took. If an owner uses Simba up to 3.2, on the JVM, the first simba-resp server that sees the tenure sets its token. Two tenures of such an owner have the same token if no server saw the mutex between the two"),
		MySQL:     KeptIf("no row of the table is deleted, the column `fencing_token` is not dropped, and no failover loses a row's last change. For owners on the JVM, see [tokens on MySQL](../explanation/stores.md#tokens-on-mysql)"),
		ZooKeeper: KeptIf("the ensemble's data is not deleted"),
	},
	{ID: "4t", Rule: "With TOKEN, GUARD and RELEASE act only on the tenure of that token"},
	{
		ID: "5", Rule: "The server sends no reply or notice before the change is durable",
		Embedded: KeptIf("the server runs with `--durability always`, and the disk keeps what it has synced"),
		Redis:    KeptIf("Redis has `appendonly yes` and `appendfsync always`, and does not fail over"), MySQL: KeptIf(mysqlDurable), ZooKeeper: KeptIf("ZooKeeper has `forceSync=yes`, its default"),
		Tests: Tests{
			Embedded: []string{
				"engine.TestWithFsyncHeldBackNobodyCanSeeAGrant", "persist.TestACrashAtAnyMomentLosesNoCommittedChange", "tests/crash.TestKillLosesNothingAcknowledged",
				"tests/crash.TestKillLosesNothingThatAsyncPromises", "tests/simulation.TestSimulation",
			},
			Redis: []string{
				"backends/redis.TestCrashOfSyncingRedisLosesNothingAcknowledged", "backends/redis.TestCrashOfSyncingRedisMakesNoTwoOwners",
			},
			MySQL:     []string{"backends/mysql.TestDatabaseCrashLosesNothingAcknowledged", "backends/mysql.TestNoTwoOwnersWhileTheDatabaseIsKilled"},
			ZooKeeper: []string{"backends/zookeeper.TestEnsembleCrashLosesNothingAcknowledged", "backends/zookeeper.TestKillingTheLeaderNeverMakesTwoOwners"},
		},
	},
	{ID: "6", Rule: "A lease begins with the grant. The server skips a waiter that disconnects before it receives the grant"},
	{
		ID: "7", Rule: "First come, first served among the waiters of one server", Embedded: KeptIf(noScripts + noOutsiders), Redis: KeptIf(noOutsiders),
	},
	{
		ID: "7s", Rule: "First come, first served among the waiters of all servers", Embedded: singleServer, Redis: KeptIf(noOutsiders),
		MySQL: NotKept("the table has no queue, so the first server to read the row gets the mutex"),
	},
	{
		ID: "8", Rule: "No lost wake-up: after a release, an expiry or a BREAK, a blocked waiter gets the mutex without asking again",
		Embedded: KeptIf(noScripts + outsidersWait), Redis: KeptIf(outsidersWait),
	},
	{
		ID: "8s", Rule: "No lost wake-up after a release through another server", Embedded: singleServer, Redis: KeptIf(outsidersWait),
		MySQL: KeptIf("[`mysql-poll`](../guides/mysql.md#poll-for-releases-of-others) is set. Otherwise the waiter's server reads the row again at the latest 1 s after the end of the lease that it has read last"),
	},
	{ID: "9", Rule: "The server removes the queue entries of waiters that are gone"},
	{
		ID: "9s", Rule: "Waiters of a crashed server delay nobody", Embedded: singleServer,
		ZooKeeper: KeptIf("the session timeout has passed since the crash"),
	},
	{
		ID: "10", Rule: "A clock step neither extends nor cuts a lease, and a restart never shortens one",
		Embedded:  KeptIf(diskKept + ". In `memory` a restart breaks the promise"),
		Redis:     KeptIf("nobody sets Redis' wall clock"),
		MySQL:     KeptIf("nobody sets the database's wall clock"),
		ZooKeeper: KeptIf(sameTimeout),
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
		ID: "10s", Rule: "A lease outlives the server that granted it", Embedded: KeptIf("the server restarts on the same data directory. In `memory` a restart loses all leases"),
		ZooKeeper: KeptIf(sameTimeout),
		Tests:     Tests{Embedded: []string{"tests/contenders.TestATenureSurvivesACrashOfTheServer", "tests/crash.TestKillLosesNothingAcknowledged"}},
	},
	{
		ID: "retry", Rule: "A client can repeat a request: ACQUIRE by the owner renews with the same token, and a waiter keeps its queue entry",
		Embedded: KeptIf("the server does not restart in between. After a restart in `always`, an owner can still repeat ACQUIRE, but a waiter has lost its queue entry"),
	},
	{
		ID: "retry-s", Rule: "A client can repeat a request through another server", Embedded: singleServer,
		ZooKeeper: KeptIf("the server that received the first request still runs"),
	},
	{
		ID: "reconnect-s", Rule: "A waiter that reconnects to another server keeps its queue entry", Embedded: singleServer,
		MySQL:     NotKept("each server has a queue of its own"),
		ZooKeeper: KeptIf("the waiter's first server still runs"),
	},
	{ID: "session", Rule: "When the connection of a `SESSION` lease closes, the server releases the mutex"},
	{ID: "reservation", Rule: "The server notifies a polling waiter by `released@@…`, and reserves the mutex for that waiter during the handoff window"},
	{
		ID: "reservation-s", Rule: "The reservation holds for the clients of other servers too", Embedded: singleServer,
		MySQL: NotKept("clients of other servers can take the reserved mutex"),
	},
	{ID: "next-waiter", Rule: "If a waiter misses or gives up its reservation, or cannot be reached, the reservation goes to the next waiter"},
	{
		ID: "unreachable", Rule: "The server skips a polling waiter that it cannot reach; the waiter keeps its queue entry until the entry expires",
		ZooKeeper: NotKept("if the first waiter cannot be reached, it loses its entry when another contender asks for the mutex"),
	},
	{
		ID: "window-0", Rule: "With `--handoff-window 0` the server reserves nothing",
	},
	{ID: "broken", Rule: "A blocked waiter whose connection breaks stays in the queue for the queue grace, as a polling waiter"},
	{ID: "notices", Rule: "The server publishes each change on the [channels](notices.md) of the mutex"},
	{
		ID: "notices-s", Rule: "Clients get notices of changes by other servers", Embedded: singleServer,
		MySQL:     KeptIf("the server reads the row between the changes. So set [`mysql-poll`](../guides/mysql.md#poll-for-releases-of-others)"),
		ZooKeeper: KeptIf("the tenure lasts longer than a few milliseconds"),
	},
	{
		ID: "queue-s", Rule: "SIMBA.QUEUE lists the waiters of all servers", Embedded: singleServer,
		MySQL: NotKept("the reply lists only the waiters of the server that sends it"),
	},
	{
		ID: "history", Rule: "SIMBA.HISTORY has the last 10,000 events that the server learned of, in that order, and the present owner's grant",
		Tests: Tests{
			Embedded: []string{"tests/clients.TestTheHistoryHasTheLastTenThousandEvents"}, Redis: []string{tenThousand},
			MySQL: []string{tenThousand}, ZooKeeper: []string{tenThousand},
		},
	},
	{ID: "scan", Rule: "SIMBA.SCAN has the guarantees of Redis' SCAN"},
	{
		ID: "names", Rule: "The server accepts every name within the limits, and never confuses two names",
		MySQL: KeptIf("simba-resp created the table. Simba's table has [shorter names](limits.md), and can have a collation for which two names are equal. Then the server refuses the second name"),
	},
	{
		ID: "outage", Rule: fmt.Sprintf("While the store is away, requests get `TRYAGAIN` within the timeout, and waiters go on waiting. The server recovers within %.0f s", Recovery.Seconds()),
		Embedded:  noStore,
		ZooKeeper: KeptIf("the outage is shorter than two thirds of the session timeout. Otherwise the server's leases and queue entries end. Blocked waiters get new entries at the end of the queue. Polling waiters get the notice `released@@…`, and must ask again"),
	},
	{
		ID: "refused", Rule: "If an operator must repair the store, requests and blocked waiters get `ERR engine … misconfigured`. After the repair, requests succeed",
		Embedded: noStore,
	},
	{
		ID: "lost", Rule: "If the store's reply to the server is lost, a client that repeats the request gets the same tenure",
		Embedded: noStore,
	},
	{
		ID: "close", Rule: "After its stop, a server sends no late reply and no late notice",
	},
}
