package dropin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// jdbcPause is the time between two polls of a JDBC contender. Simba itself polls again only when
// the lease that it has read ends, and 100 changes of the owner would take minutes.
const jdbcPause = 50 * time.Millisecond

// jdbc is a contender that polls a row of a table, as Simba's JDBC backend does.
type jdbc struct {
	db        *sql.DB
	mutex, id string
	fencing   bool // it acts like Simba 3.3 or later, which counts tokens
	last      uint64
}

// errDeadlock is MySQL's error number for a deadlock. If two contenders insert the row at once, one
// of them may get this error.
const errDeadlock = 1213

func (k *jdbc) acquire(ctx context.Context) (string, error) {
	for {
		owns, err := k.try(ctx)
		var refused *mysql.MySQLError
		if errors.As(err, &refused) && refused.Number == errDeadlock {
			owns, err = false, nil
		}
		if owns || err != nil {
			return k.id, err
		}
		select {
		case <-time.After(jdbcPause):
		case <-ctx.Done():
			return "", fmt.Errorf("the JDBC contender %s did not acquire the mutex: %w", k.id, ctx.Err())
		}
	}
}

// try polls once, or renews. One transaction updates the row and reads it.
func (k *jdbc) try(ctx context.Context) (owns bool, err error) {
	tx, err := k.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	update, get := seeds.MySQLAcquire, seeds.MySQLGet
	args := []any{lease * 2 / 3, lease, k.id, k.mutex, k.id}
	var owner string
	var version, end, now int64
	var token uint64
	row := []any{&owner, &version, &end, &now}
	if k.fencing {
		update, get = seeds.MySQLFencedAcquire, seeds.MySQLFencedGet
		args = append([]any{k.id}, args...)
		row = append(row, &token)
	}
	if _, err := tx.ExecContext(ctx, update, args...); err != nil {
		return false, err
	}
	if err := tx.QueryRowContext(ctx, get, k.mutex).Scan(row...); err != nil {
		return false, err
	}
	if owns = owner == k.id && end > now; owns {
		k.last = token
	}
	return owns, tx.Commit()
}

func (k *jdbc) token() uint64 { return k.last }

// release renews, checks that the token stays the same, and releases. Without fencing it does not
// renew, since each renewal changes the token.
func (k *jdbc) release(ctx context.Context) error {
	if k.fencing {
		before := k.last
		if owns, err := k.try(ctx); err != nil || !owns || k.last != before {
			return fmt.Errorf("%s cannot renew its tenure with token %d: after the renewal it is the owner: %v, with token %d, %w", k.id, before, owns, k.last, err)
		}
	}
	r, err := k.db.ExecContext(ctx, seeds.MySQLRelease, k.mutex, k.id)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%s has lost its lease: the release changed %d rows, %w", k.id, n, err)
	}
	return nil
}

// TestJDBCContendersAndOursShareAMutex lets JDBC contenders and two of ours contend, on tables of
// Simba 3.1 and 3.3. A server adds the column for tokens to the former. The contest asks one of the
// two servers for the token of each tenure. So this server sees each tenure, and gives each its own
// token.
func TestJDBCContendersAndOursShareAMutex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, table string
		fencing     []bool // of each JDBC contender
	}{
		{"3.1", seeds.MySQLTable, []bool{false, false}},
		{"3.3", seeds.MySQLFencedTable, []bool{true, true}},
		{"3.1 on the table of 3.3", seeds.MySQLFencedTable, []bool{false, false}},
		{"3.1 and 3.3 on the table of 3.3", seeds.MySQLFencedTable, []bool{true, true, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, flags := simbatest.Store(t, "mysql")
			db, err := sql.Open("mysql", "root@tcp("+store+")/simba")
			simbatest.Must(t, err)
			t.Cleanup(func() { db.Close() })
			for _, s := range []string{c.table, "INSERT IGNORE INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version) VALUES ('m', 0, 0, 0, '', 0)"} {
				if _, err := db.ExecContext(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			at := &site{engine: "mysql", store: store}
			for range 2 {
				at.servers = append(at.servers, simbatest.Start(t, flags...))
			}
			var theirs []contender
			for i, fencing := range c.fencing {
				theirs = append(theirs, &jdbc{db: db, mutex: "m", id: fmt.Sprint("jvm", i), fencing: fencing})
			}
			beside(t, at, "m", theirs...)
		})
	}
}
