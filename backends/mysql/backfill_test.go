package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

func fencingOf(t testing.TB, db *sql.DB, mutex string) (token uint64) {
	t.Helper()
	noError(t, db.QueryRow("SELECT fencing_token FROM simba_mutex WHERE mutex = ?", mutex).Scan(&token))
	return token
}

// Simba adds the column with 0 in every row. Each kind of statement may be the first to find it.
func TestTokensAreUniqueAfterSimbaAddsTheColumn(t *testing.T) {
	for name, meet := range map[string]func(t *testing.T, b *Backend, addr string){
		"a read":  func(t *testing.T, b *Backend, _ string) { ownerOf(t, b, "m") },
		"a grant": func(t *testing.T, b *Backend, _ string) { take(t, b, "other", "a", long) },
		"Open":    func(t *testing.T, _ *Backend, addr string) { serve(t, addr, withoutMigration) },
	} {
		t.Run(name, func(t *testing.T) {
			store := serverWithSeedTable(t)
			db := direct(t, store, "")
			b := serve(t, store.Addr, withoutMigration)
			k := tokens{mutex: "m"}
			for range 3 {
				k.begin(t, "a", take(t, b, "m", "a", long).Token, b)
				release(t, b, "m", "a")
			}
			running := tokens{mutex: "running"}
			running.begin(t, "r", take(t, b, "running", "r", long).Token, b)
			must(t, db, "INSERT INTO simba_mutex SELECT CONCAT('m', seq), 0, 0, 0, '', seq FROM seq_1_to_350")
			must(t, db, simbasColumn)
			// The early contender's tenure begins before a server has found the column.
			early := jvm{db: db, mutex: "m7", id: "early", ttl: long, fenced: true}
			if token := early.mustAcquire(t); token != 1 {
				t.Fatalf("the early contender has token %d, want 1", token)
			}

			meet(t, b, store.Addr)
			await(t, "the backfill is done", func() bool {
				var zeros int
				noError(t, db.QueryRow("SELECT COUNT(*) FROM simba_mutex WHERE fencing_token = 0").Scan(&zeros))
				return zeros == 0
			})
			for i := 1; i <= 350; i++ {
				if token, want := fencingOf(t, db, fmt.Sprint("m", i)), uint64(i)*tokenUnit+legacyMark; token != want && i != 7 {
					t.Errorf("the row m%d has fencing_token %d, want %d, as for its version", i, token, want)
				}
			}
			now := jvm{db: db, mutex: "m", id: "now", ttl: long, fenced: true}
			k.begin(t, "now", now.mustAcquire(t), b, serve(t, store.Addr, withoutMigration))
			running.goOn(t, "r", b)
			if token := fencingOf(t, db, "m7"); token != 1 || early.mustAcquire(t) != 1 {
				t.Errorf("the early contender's token became %d, want 1", token)
			}
		})
	}
}

func TestBackfillWaitsForALockedRowAndFailsNoRequest(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	one := serve(t, store.Addr, withoutMigration)
	must(t, db, "INSERT INTO simba_mutex SELECT CONCAT('m', LPAD(seq, 3, '0')), 0, 0, 0, '', seq FROM seq_1_to_350")
	must(t, db, simbasColumn)
	tx := lockRow(t, db, "m007")
	two := serve(t, store.Addr, withoutMigration)
	ownerOf(t, one, "m200")
	await(t, "the pages without the locked row are done", func() bool { return fencingOf(t, db, "m350") == 350_000_002 })
	for i, b := range []*Backend{one, two} {
		mutex := fmt.Sprintf("m10%d", i)
		a := take(t, b, mutex, "a", long)
		g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: "a", TTL: long, Token: a.Token})
		if err != nil || g.Status != simba.StatusRenewed || g.Token != a.Token {
			t.Errorf("GUARD: %+v, %v; want renewed with the same token", g, err)
		}
	}
	if token := fencingOf(t, db, "m007"); token != 0 {
		t.Errorf("the locked row has token %d, want 0", token)
	}
	tx.Rollback()
	await(t, "the backfill has changed the unlocked row", func() bool { return fencingOf(t, db, "m007") == 7_000_002 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := two.store.backfill(ctx, patience); err != nil {
		t.Errorf("backfill: %v; want no error", err)
	}
}

// A row that nobody has owned needs no token.
func TestBackfillSkipsRowsOfVersionZero(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLFencedTable)
	db := direct(t, store, "")
	must(t, db, seeds.MySQLInit, "m")
	b := serve(t, store.Addr, withoutMigration)
	if last, more, err := b.store.nextLegacyPage(t.Context(), ""); last != "" || more || err != nil {
		t.Errorf("nextLegacyPage returned %q, %v, %v; want nothing", last, more, err)
	}
}
