package mysql

import (
	"database/sql"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func awaitBackfill(t testing.TB, servers ...*Backend) {
	t.Helper()
	for _, b := range servers {
		await(t, "the backfill is done", func() bool { return !b.store.backfillPending.Load() })
	}
}

// A tenure of this engine ends, and an owner that takes no token follows. Servers that start
// afterwards refuse the old token, however the tenure ended and whenever the column was added.
func TestStaleTokenIsRefusedByANewServer(t *testing.T) {
	for table, make := range map[string]struct{ before, after func(*sql.DB) }{
		"ours":    {func(db *sql.DB) { must(t, db, Schema) }, func(*sql.DB) {}},
		"Simba's": {func(db *sql.DB) { must(t, db, seeds.MySQLFencedTable) }, func(*sql.DB) {}},
		"the column is added by us while our tenure runs": {
			func(db *sql.DB) { must(t, db, seeds.MySQLTable) },
			func(db *sql.DB) { must(t, db, addToken); must(t, db, defaultToken) },
		},
		"the column is added by Simba while our tenure runs": {
			func(db *sql.DB) { must(t, db, seeds.MySQLTable) },
			func(db *sql.DB) { must(t, db, simbasColumn) },
		},
	} {
		store := stores.MariaDB(t)
		db := direct(t, store, "")
		make.before(db)
		one := serve(t, store.Addr, withoutMigration)
		tenures := map[string]simba.Outcome{}
		for end := range endings(t, db, one, "") {
			tenures[end] = take(t, one, end, "a", long)
		}
		make.after(db)
		awaitBackfill(t, serve(t, store.Addr, withoutMigration))
		for end, a := range tenures {
			t.Run(table+", "+end, func(t *testing.T) {
				if ok, _, err := one.Check(t.Context(), end, a.Token); !ok || err != nil {
					t.Errorf("CHECK of the token of the running tenure: %v, %v; want true", ok, err)
				}
				endings(t, db, one, end)[end]("a", nil)
				old := jvm{db: db, mutex: end, id: "old", ttl: long}
				old.mustAcquire(t)
				old.mustAcquire(t)
				checks, owns := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)
				if ok, _, err := checks.Check(t.Context(), end, a.Token); ok || err != nil {
					t.Errorf("CHECK of the stale token: %v, %v; want false", ok, err)
				}
				k := tokens{mutex: end, list: []uint64{a.Token}}
				k.begin(t, "old", ownerOf(t, owns, end).Token, owns, checks, one)
				old.mustAcquire(t)
				k.goOn(t, "old", owns, checks, one)
			})
		}
	}
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

// The next owner gets a larger token, whether it is one of this engine or a contender on the JVM of
// either kind.
func TestLeaseOlderThanTheColumnKeepsItsToken(t *testing.T) {
	for name, add := range map[string]string{"ours": addToken, "Simba's": simbasColumn} {
		store := serverWithSeedTable(t)
		db := direct(t, store, "")
		one := serve(t, store.Addr, withoutMigration)
		must(t, db, "INSERT INTO simba_mutex VALUES ('us', 0, 0, 0, '', 70), ('now', 0, 0, 0, '', 70), ('old', 0, 0, 0, '', 70), ('theirs', 0, 0, 0, '', 70)")
		all := map[string]*tokens{}
		for _, next := range []string{"us", "now", "old"} {
			all[next] = &tokens{mutex: next}
			all[next].begin(t, "a", take(t, one, next, "a", long).Token, one)
		}
		theirs := tokens{mutex: "theirs"}
		before := jvm{db: db, mutex: "theirs", id: "before", ttl: long}
		before.mustAcquire(t)
		theirs.begin(t, "before", 71, one)
		must(t, db, add)
		two := serve(t, store.Addr, withoutMigration)
		for i, b := range []*Backend{two, one, two} {
			for _, k := range all {
				k.goOn(t, "a", b)
				b.mustKeep(t, k.mutex, "a", k.list[0])
				if o, _, err := b.Acquire(t.Context(), request(k.mutex, "a", long)); err != nil || o.Status != simba.StatusRenewed || o.Token != k.list[0] {
					t.Errorf("%s: ACQUIRE of a: %+v, %v; want renewed with the same token", name, o, err)
				}
				if g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: k.mutex, Contender: "a", TTL: long}); err != nil || g.Status != simba.StatusRenewed || g.Token != k.list[0] {
					t.Errorf("%s: GUARD of a: %+v, %v; want renewed with the same token", name, g, err)
				}
			}
			if i == 0 {
				theirs.goOn(t, "before", two, one)
				awaitBackfill(t, one, two)
			}
		}
		theirs.goOn(t, "before", two, one)
		before.mustAcquire(t)
		theirs.begin(t, "before", 71*tokenUnit+legacyMark, one, two)
		before.mustAcquire(t)
		theirs.goOn(t, "before", one, two)
		expire(t, db, "theirs")
		theirs.begin(t, "us", take(t, one, "theirs", "us", long).Token, one, two)

		for _, k := range all {
			expire(t, db, k.mutex)
			next := jvm{db: db, mutex: k.mutex, id: k.mutex, ttl: long, fenced: k.mutex == "now"}
			switch k.mutex {
			case "us":
				k.begin(t, "us", take(t, two, "us", "us", long).Token, two, one)
			case "now":
				k.begin(t, "now", next.mustAcquire(t), two, one)
			case "old":
				next.mustAcquire(t)
				k.begin(t, "old", ownerOf(t, two, "old").Token, two, one)
			}
		}
	}
}

func TestRequestWithoutATokenGetsTheTenuresTokenFromAnUnawareServer(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	guards, releases := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)
	must(t, db, addToken)
	a := take(t, serve(t, store.Addr, withoutMigration), "m", "a", long)
	g, err := guards.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
	if err != nil || g.Status != simba.StatusRenewed || g.Token != a.Token {
		t.Errorf("GUARD without a token: %+v, %v; want renewed with token %d", g, err, a.Token)
	}
	release(t, releases, "m", "a")
	if e, _ := releases.eventLog.Last("m"); e.Kind != simba.EventReleased || e.Token != a.Token {
		t.Errorf("RELEASE without a token: last event %+v; want released with token %d", e, a.Token)
	}
	if token := fencingOf(t, db, "m"); token <= a.Token {
		t.Errorf("after the release the table has token %d, want more than %d", token, a.Token)
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
		"before":         {90, 90_000_002, 91_000_000},
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
