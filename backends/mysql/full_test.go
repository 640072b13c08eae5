package mysql

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Every request that renews works without an INSERT. An acquire of a new mutex needs a row, and
// fails with a clear error.
func TestOwnerRenewsInAFullDatabase(t *testing.T) {
	store := stores.MariaDB(t, "--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M")
	b := serve(t, store.Addr, nil)
	db := direct(t, store, "")
	owned := take(t, b, "owned", "a", long)
	fill(t, db)

	for round := range 5 {
		inserts := insertsOf(t, db)
		conformance.Renew(t, b, "owned", "a", long)
		for _, r := range []simba.AcquireRequest{{}, {Session: 7}, {Waiter: conformance.NewBlocked()}} {
			r.Mutex, r.Contender, r.TTL = "owned", "a", long
			if o, _, err := b.Acquire(t.Context(), r); err != nil || o.Status != simba.StatusRenewed || o.Token != owned.Token {
				t.Errorf("round %d, ACQUIRE %+v of the owner: %+v, %v; want renewed", round, r, o, err)
			}
		}
		if n := insertsOf(t, db) - inserts; n > 0 {
			t.Errorf("round %d: the renewals inserted %d rows, want 0", round, n)
		}
		for _, w := range []simba.Waiter{nil, conformance.NewBlocked()} {
			tries := 0
			await(t, "a new mutex is refused", func() bool {
				tries++
				r := request(fmt.Sprintf("new-%d-%v-%d", round, w == nil, tries), "b", long)
				r.Waiter = w
				_, _, err := b.Acquire(t.Context(), r)
				if err == nil { // the database has freed space since
					fill(t, db)
					return false
				}
				if !isUnavailable(err) || !strings.Contains(err.Error(), "no space for a new mutex") {
					t.Errorf("round %d, ACQUIRE of a new mutex: %v; want the error \"no space for a new mutex\"", round, err)
				}
				return true
			})
		}
	}
	must(t, db, "DELETE FROM simba_mutex WHERE mutex LIKE 'fill-%'")
	await(t, "there is room again", func() bool {
		o, _, err := b.Acquire(t.Context(), request("new", "b", long))
		return err == nil && (o.Status == simba.StatusAcquired || o.Status == simba.StatusRenewed)
	})
}

// insertsOf returns how many INSERTs the database has executed or refused.
func insertsOf(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	noError(t, db.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_insert'").Scan(new(string), &n))
	return n
}

func fill(t *testing.T, db *sql.DB) {
	t.Helper()
	refused, once := 0, rand.Text()
	for i := 0; refused < 20; i++ {
		_, err := db.Exec(insertRow, fmt.Sprintf("fill-%s-%d-%s", once, i, strings.Repeat("x", 210)))
		switch {
		case errorNumber(err) == 1114:
			refused++
		case err != nil:
			t.Fatalf("Exec: %v; want no error", err)
		}
	}
}
