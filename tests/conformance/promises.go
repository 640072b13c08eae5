package conformance

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Recovery is how soon after an outage of its store a server serves every client again. That takes
// a second or two. The rest is for a busy machine, which may stop the server and the store for some
// seconds.
const Recovery = 10 * time.Second

// engines names the engines in the order of the documentation's columns, and the folder of each in
// the repository. The file PromisesFile of that folder says how far the engine keeps each promise.
var engines = []struct{ name, folder string }{
	{"embedded", "engine"}, {"cluster", "cluster"}, {"redis", "backends/redis"}, {"mysql", "backends/mysql"}, {"postgres", "backends/postgres"},
	{"zookeeper", "backends/zookeeper"},
}

// PromisesFile is the name of the file in which an engine says how far it keeps the promises. An
// entry is a line "promise: keeping", where the keeping is "kept", "kept if a condition", "not
// kept: what the engine does instead" or "not applicable: why". Lines with a tab follow for tests
// of the promise that the suite cannot run on every engine. Such tests kill a store or set a clock.
// A name is the folder, a dot, and the function:
//
//	5: kept if the disk keeps what it has synced
//		test persist.TestX
//
// The engine keeps a promise without an entry.
const PromisesFile = "promises.txt"

// Promise is one line of the documentation's table: a rule for all engines.
type Promise struct {
	ID   string // a number or a word; rules name their promise by it
	Rule string
}

// Keeping says how far an engine keeps a promise. The zero value is kept.
type Keeping struct {
	state state
	text  string
	tests []string // of this engine, besides the rules of the suite
}

type state uint8

const (
	kept state = iota
	keptIf
	notKept
	notApplicable
)

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

// prefixes are how the text of a keeping begins, except for "kept".
var prefixes = map[state]string{keptIf: "kept if ", notKept: "not kept: ", notApplicable: "not applicable: "}

// keepings reads the PromisesFile in a folder. It returns how the engine keeps each promise, by ID.
func keepings(t testing.TB, folder string) map[string]Keeping {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, PromisesFile))
	if err != nil {
		t.Fatalf("the engine does not say how it keeps the promises: %v", err)
	}
	defer f.Close()
	all, last := make(map[string]Keeping), ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if test, ok := strings.CutPrefix(lines.Text(), "\ttest "); ok && last != "" {
			k := all[last]
			k.tests = append(k.tests, test)
			all[last] = k
			continue
		}
		id, text, ok := strings.Cut(lines.Text(), ": ")
		var k Keeping
		for state, prefix := range prefixes {
			if rest, is := strings.CutPrefix(text, prefix); is {
				k.state, k.text = state, rest
			}
		}
		if !ok || k.state == kept && text != "kept" {
			t.Fatalf("%s: the line %q has no promise, or no keeping", f.Name(), lines.Text())
		}
		promiseOf(t, id)
		all[id], last = k, id
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
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

// Promises lists all promises.
var Promises = []Promise{
	{"1", "At most one owner. Before `transition_at`, only RELEASE, BREAK or the end of a SESSION ends a lease"},
	{"2", "`ttl_at = acquired_at + ttl`, `transition_at = ttl_at + transition`"},
	{"since", "`since` of SIMBA.OWNER is the start of the tenure"},
	{"3", "GUARD never begins or revives a tenure. A renewal begins both windows anew, with the lengths of the request"},
	{"4", "Tokens grow from tenure to tenure, and stay the same for a whole tenure"},
	{"4t", "With TOKEN, GUARD and RELEASE act only on the tenure of that token"},
	{"5", "The server sends no reply or notice before the change is durable"},
	{"6", "A lease begins with the grant. The server skips a waiter that disconnects before it receives the grant"},
	{"7", "First come, first served among the waiters of one server"},
	{"7s", "First come, first served among the waiters of all servers"},
	{"8", "No lost wake-up: after a release, an expiry or a BREAK, a blocked waiter gets the mutex without asking again"},
	{"8s", "No lost wake-up after a release through another server"},
	{"9", "The server removes the queue entries of waiters that are gone"},
	{"9s", "Waiters of a crashed server delay nobody"},
	{"10", "A clock step neither extends nor cuts a lease, and a restart never shortens one"},
	{"10s", "A lease outlives the server that granted it"},
	{"retry", "A client can repeat a request: ACQUIRE by the owner renews with the same token, and a waiter keeps its queue entry"},
	{"retry-s", "A client can repeat a request through another server"},
	{"reconnect-s", "A waiter that reconnects to another server keeps its queue entry"},
	{"session", "When the connection of a `SESSION` lease closes, the server releases the mutex"},
	{"reservation", "The server notifies a polling waiter by `released@@…`, and reserves the mutex for that waiter during the handoff window"},
	{"reservation-s", "The reservation holds for the clients of other servers too"},
	{"next-waiter", "If a waiter misses or gives up its reservation, or cannot be reached, the reservation goes to the next waiter"},
	{"unreachable", "The server skips a polling waiter that it cannot reach; the waiter keeps its queue entry until the entry expires"},
	{"window-0", "With `--handoff-window 0` the server reserves nothing"},
	{"broken", "A blocked waiter whose connection breaks stays in the queue for the queue grace, as a polling waiter"},
	{"notices", "The server publishes each change on the [channels](notices.md) of the mutex"},
	{"notices-s", "Clients get notices of changes by other servers"},
	{"queue-s", "SIMBA.QUEUE lists the waiters of all servers"},
	{"history", "SIMBA.HISTORY has the last 10,000 events that the server learned of, in that order, and the present owner's grant"},
	{"scan", "SIMBA.SCAN has the guarantees of Redis' SCAN"},
	{"names", "The server accepts every name within the limits, and never confuses two names"},
	{"outage", fmt.Sprintf("While the store is away, requests get `TRYAGAIN` within the timeout, and waiters go on waiting. The server recovers within %.0f s", Recovery.Seconds())},
	{"refused", "If an operator must repair the store, requests and blocked waiters get `ERR engine … misconfigured`. After the repair, requests succeed"},
	{"lost", "If the store's reply to the server is lost, a client that repeats the request gets the same tenure"},
	{"close", "After its stop, a server sends no late reply and no late notice"},
}
