package mysql

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// tokens records the tokens of one mutex's tenures, in order.
type tokens struct {
	mutex string
	list  []uint64
}

// begin records a new tenure. Its token must be larger than all before, and the given servers must
// show it.
func (k *tokens) begin(t *testing.T, owner string, token uint64, servers ...*Backend) {
	t.Helper()
	if n := len(k.list); n > 0 && token <= k.list[n-1] {
		t.Errorf("%s has token %d, not above the earlier ones %v", owner, token, k.list)
	}
	k.list = append(k.list, token)
	k.goOn(t, owner, servers...)
}

// goOn checks on each server that the last tenure is running with its token, and that no other
// token is valid.
func (k *tokens) goOn(t *testing.T, owner string, servers ...*Backend) {
	t.Helper()
	last := len(k.list) - 1
	for i, b := range servers {
		if o := ownerOf(t, b, k.mutex); o.Owner != owner || o.Token != k.list[last] {
			t.Errorf("server %d shows %s with token %d, want %s with the last of %v", i, o.Owner, o.Token, owner, k.list)
		}
		for j, token := range k.list {
			if ok, _, err := b.Check(t.Context(), k.mutex, token); err != nil || ok != (j == last) {
				t.Errorf("server %d: CHECK of token %d of %v is %v, %v; want true only for the last",
					i, token, k.list, ok, err)
			}
		}
	}
}

func (j jvm) mustAcquire(t testing.TB) (token uint64) {
	t.Helper()
	token, owns, err := j.acquireToken(t.Context())
	if err != nil || !owns {
		t.Fatalf("acquire of the Simba contender %s for %s: %v, %v; want true", j.id, j.mutex, owns, err)
	}
	return token
}

func (j jvm) giveUp(t testing.TB) {
	t.Helper()
	noError(t, j.release(t.Context()))
}

func expire(t testing.TB, db *sql.DB, mutex string) {
	t.Helper()
	must(t, db, "UPDATE simba_mutex SET ttl_at = 1, transition_at = 1 WHERE mutex = ?", mutex)
}

// endings are the ways in which a tenure ends. j is the owner on the JVM, nil for a tenure of this
// engine.
func endings(t testing.TB, db *sql.DB, b *Backend, mutex string) map[string]func(owner string, j *jvm) {
	return map[string]func(string, *jvm){
		"release": func(owner string, j *jvm) {
			if j != nil {
				j.giveUp(t)
			} else {
				release(t, b, mutex, owner)
			}
		},
		"expiry": func(string, *jvm) { expire(t, db, mutex) },
		"break": func(string, *jvm) {
			if ok, _, err := b.Break(t.Context(), mutex, ""); !ok || err != nil {
				t.Fatalf("BREAK: %v, %v; want true", ok, err)
			}
		},
	}
}

// Some owners take a token and some do not, on every table that has the column.
func TestTokensGrowAndAgreeAcrossJVMAndOwnTenures(t *testing.T) {
	for table, make := range map[string]func(*sql.DB){
		"ours":    func(db *sql.DB) { must(t, db, Schema) },
		"Simba's": func(db *sql.DB) { must(t, db, seeds.MySQLFencedTable) },
		"older, with the column added by us": func(db *sql.DB) {
			must(t, db, seeds.MySQLTable)
			must(t, db, addToken)
		},
	} {
		store := stores.MariaDB(t)
		db := direct(t, store, "")
		make(db)
		one, two := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)
		for end := range endings(t, db, one, "") {
			t.Run(table+", "+end, func(t *testing.T) {
				mutex := end
				stop := endings(t, db, one, mutex)[end]
				must(t, db, seeds.MySQLInit, mutex)
				now, old := jvm{db: db, mutex: mutex, id: "now", ttl: long, fenced: true}, jvm{db: db, mutex: mutex, id: "old", ttl: long}
				k := tokens{mutex: mutex}
				for round := range 4 {
					a := take(t, one, mutex, "a", long)
					k.begin(t, "a", a.Token, one, two)
					var token uint64
					if err := db.QueryRow("SELECT fencing_token FROM simba_mutex WHERE mutex = ?", mutex).Scan(&token); err != nil || token != a.Token {
						t.Errorf("the table has token %d, %v; want that of ACQUIRE, %d", token, err, a.Token)
					}
					stop("a", nil)

					k.begin(t, "now", now.mustAcquire(t), one, two)
					if again := now.mustAcquire(t); again != k.list[len(k.list)-1] {
						t.Errorf("a renewal on the JVM returned token %d, want the last of %v", again, k.list)
					}
					k.goOn(t, "now", one, two)
					stop("now", &now)

					old.mustAcquire(t)
					k.begin(t, "old", ownerOf(t, one, mutex).Token, one, two)
					old.mustAcquire(t)
					k.goOn(t, "old", one, two)
					if round%2 == 0 { // a tenure of this engine follows the one without a token
						stop("old", &old)
						continue
					}
					stop("old", &old)
					k.begin(t, "now", now.mustAcquire(t), two, one)
					stop("now", &now)
				}
				// Servers that start when an owner without a token has followed refuse the old token.
				stale := take(t, one, mutex, "a", long).Token
				stop("a", nil)
				old.mustAcquire(t)
				old.mustAcquire(t)
				checks, owns := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)
				if ok, _, err := checks.Check(t.Context(), mutex, stale); ok || err != nil {
					t.Errorf("CHECK of the stale token: %v, %v; want false", ok, err)
				}
				k.list = append(k.list, stale)
				k.begin(t, "old", ownerOf(t, owns, mutex).Token, owns, checks, one)
			})
		}
	}
}

// An owner without a token increments version, but not fencing_token.
func TestOwnerWithoutATokenIsAssignedOne(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLFencedTable)
	db := direct(t, store, "")
	servers := []*Backend{serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)}
	fresh := func(t *testing.T, mutex string) (a, b jvm) {
		must(t, db, seeds.MySQLInit, mutex)
		a = jvm{db: db, mutex: mutex, id: "a", ttl: long}
		b = a
		b.id = "b"
		return a, b
	}
	t.Run("after a known tenure, read by many servers at once", func(t *testing.T) {
		for round := range 10 {
			mutex := fmt.Sprint("next-", round)
			a, b := fresh(t, mutex)
			a.mustAcquire(t)
			k := tokens{mutex: mutex}
			k.begin(t, "a", ownerOf(t, servers[0], mutex).Token, servers...)
			a.giveUp(t)
			b.mustAcquire(t)
			seen := make(chan uint64)
			for i := range 12 {
				go func() {
					if i%4 == 0 {
						_, _, _ = b.acquireToken(t.Context()) // it renews meanwhile
					}
					o, _, err := servers[i%3].Owner(t.Context(), mutex)
					if err != nil {
						t.Errorf("OWNER: %v; want no error", err)
					}
					seen <- o.Token
				}()
			}
			list := make([]uint64, 12)
			for i := range list {
				list[i] = <-seen
			}
			if slices.Min(list) != slices.Max(list) {
				t.Errorf("the servers report the tokens %v for one tenure, want one", list)
			}
			k.begin(t, "b", list[0], servers...)
		}
	})
	t.Run("the same owner again, after a known release", func(t *testing.T) {
		a, _ := fresh(t, "again")
		k := tokens{mutex: "again"}
		for range 3 {
			a.mustAcquire(t)
			k.begin(t, "a", ownerOf(t, servers[0], "again").Token, servers[0])
			a.giveUp(t)
			if o := ownerOf(t, servers[0], "again"); o.Owner != "" {
				t.Errorf("OWNER after the release: %+v; want no owner", o)
			}
		}
	})
	t.Run("when the owner asks a server", func(t *testing.T) {
		for name, ask := range map[string]func(mutex string) (simba.Outcome, error){
			"acquire": func(mutex string) (simba.Outcome, error) {
				o, _, err := servers[0].Acquire(t.Context(), request(mutex, "b", long))
				return o, err
			},
			"guard": func(mutex string) (simba.Outcome, error) {
				return servers[0].Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: "b", TTL: long})
			},
		} {
			_, b := fresh(t, name)
			a := take(t, servers[0], name, "a", long)
			expire(t, db, name)
			b.mustAcquire(t)
			o, err := ask(name)
			if err != nil || o.Status != simba.StatusRenewed || o.Token <= a.Token {
				t.Errorf("%s of b: %+v, %v; want renewed with a token above %d", name, o, err, a.Token)
			}
			k := tokens{mutex: name, list: []uint64{a.Token}}
			k.begin(t, "b", o.Token, servers[0])
			release(t, servers[0], name, "b")
			if e := last(t, servers[0], name); e.Kind != simba.EventReleased || e.Token != o.Token {
				t.Errorf("%s: the history has %+v, want the release of token %d", name, e, o.Token)
			}
		}
	})
	t.Run("a pattern subscriber", func(t *testing.T) {
		a, b := fresh(t, "followed")
		a.mustAcquire(t)
		ownerOf(t, servers[1], "followed") // assigns a token to a
		a.giveUp(t)
		if _, err := servers[0].Subscribed(t.Context(), "*", true); err != nil {
			t.Fatalf("Subscribed: %v; want no error", err)
		}
		a.mustAcquire(t)
		await(t, "a is announced", func() bool { return len(tenureEvents(t, servers[0], "followed")) == 1 })
		a.giveUp(t)
		b.mustAcquire(t)
		await(t, "b is announced", func() bool { return len(tenureEvents(t, servers[0], "followed")) == 3 })
		list, _, err := servers[0].History(t.Context(), simba.HistoryRequest{Mutex: "followed", Count: 3})
		if err != nil || list[0].Token != list[1].Token || list[2].Token <= list[0].Token || list[2].Owner != "b" {
			t.Errorf("HISTORY: %+v, %v; want b's tenure last, with a larger token", list, err)
		}
	})
}

// The row looks as if its owner had no token. The owner learns the new token when it renews.
func TestSimba33OwnerWithAMultipleOfAMillionIsReassigned(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLFencedTable)
	db := direct(t, store, "")
	b := serve(t, store.Addr, withoutMigration)
	must(t, db, "INSERT INTO simba_mutex VALUES ('m', 0, 0, 0, '', 2500000, 1999998)")
	now := jvm{db: db, mutex: "m", id: "now", ttl: long, fenced: true}
	k := tokens{mutex: "m"}
	k.begin(t, "now", now.mustAcquire(t), b)
	now.giveUp(t)
	if token := now.mustAcquire(t); token != 2_000_000 {
		t.Errorf("the Simba contender has token %d, want 2000000", token)
	}
	k.begin(t, "now", ownerOf(t, b, "m").Token, b)
	if token := now.mustAcquire(t); token != k.list[1] {
		t.Errorf("after its renewal the Simba contender has token %d, want the last of %v", token, k.list)
	}
	now.giveUp(t)
	k.begin(t, "now", now.mustAcquire(t), b)
}

// The later tenure is on the JVM and takes no token.
func TestStaleTokenAffectsNoLaterTenureOfItsContender(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLFencedTable)
	db := direct(t, store, "")
	one := serve(t, store.Addr, withoutMigration)
	a := take(t, one, "m", "a", long)
	expire(t, db, "m")
	same := jvm{db: db, mutex: "m", id: "a", ttl: long}
	same.mustAcquire(t)
	two := serve(t, store.Addr, withoutMigration)
	g, err := two.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long, Token: a.Token})
	if err != nil || g.Status != simba.StatusLost {
		t.Errorf("GUARD with the stale token: %+v, %v; want lost", g, err)
	}
	three := serve(t, store.Addr, withoutMigration)
	if ok, _, err := three.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: a.Token}); ok || err != nil {
		t.Errorf("RELEASE with the stale token: %v, %v; want false", ok, err)
	}
	if o := ownerOf(t, three, "m"); o.Owner != "a" || o.Token <= a.Token {
		t.Errorf("OWNER: %+v; want a with its new token", o)
	}
}

// A token is a million times the version, up to the largest version that Simba's table can hold.
// Earlier tenures on the JVM do not change that.
func TestTokensAreMillionsOfTheVersion(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLFencedTable)
	db := direct(t, store, "")
	b := serve(t, store.Addr, withoutMigration)
	for mutex, c := range map[string]struct{ version, fencing, want uint64 }{
		"new":            {0, 0, 1_000_000},
		"used":           {4712, 4712_000_000, 4713_000_000},
		"3.3 alone":      {90, 7, 91_000_000},
		"3.3 after ours": {90, 71_000_009, 91_000_000},
		"2.x alone":      {90, 0, 91_000_000},
		"by hand":        {3, 90_000_000, 91_000_000},
		"the last":       {1<<32 - 3, (1<<32 - 3) * tokenUnit, (1<<32 - 2) * tokenUnit},
	} {
		must(t, db, "INSERT INTO simba_mutex VALUES (?, 0, 0, 0, '', ?, ?)", mutex, c.version, c.fencing)
		a := take(t, b, mutex, "a", long)
		if stored := fencingOf(t, db, mutex); a.Token != c.want || stored != c.want {
			t.Errorf("%s: ACQUIRE returned token %d, and the table has %d; want %d", mutex, a.Token, stored, c.want)
		}
		if o, _, err := b.Acquire(t.Context(), request(mutex, "a", long)); err != nil || o.Status != simba.StatusRenewed || o.Token != c.want {
			t.Errorf("%s: ACQUIRE repeated: %+v, %v; want renewed with the same token", mutex, o, err)
		}
		if ok, _, err := b.Check(t.Context(), mutex, c.want); !ok || err != nil {
			t.Errorf("%s: CHECK of the token: %v, %v; want true", mutex, ok, err)
		}
		release(t, b, mutex, "a")
	}
}

func fencingOf(t testing.TB, db *sql.DB, mutex string) (token uint64) {
	t.Helper()
	noError(t, db.QueryRow("SELECT fencing_token FROM simba_mutex WHERE mutex = ?", mutex).Scan(&token))
	return token
}

func tenureEvents(t *testing.T, b *Backend, mutex string) []simba.Event {
	t.Helper()
	list, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: mutex, Count: 100})
	noError(t, err)
	return list
}
