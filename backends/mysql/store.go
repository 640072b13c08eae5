package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// store accesses the table. Each method runs one statement, which commits by itself, and repeats it
// after a conflict with another transaction (see lockWaits). Statements that read also check that
// the database accepts writes (see query).
type store struct {
	db     *sql.DB
	table  table
	clock  *clock
	waits  *lockWaits
	fenced *atomic.Bool // the table had fencing_token when a statement last used it
	// backfillPending is true until the backfill is done. Until then, a row with a fencing_token of
	// 0 may be older than the column.
	backfillPending *atomic.Bool
	columnAdded     chan struct{} // starts Backend.backfillTokens; capacity 1
}

func newStore(db *sql.DB, t table, timeout time.Duration) store {
	s := store{
		db: db, table: t, clock: newClock(), waits: newLockWaits(timeout),
		fenced: new(atomic.Bool), backfillPending: new(atomic.Bool), columnAdded: make(chan struct{}, 1),
	}
	s.backfillPending.Store(true)
	s.noteColumn(t.fenced)
	return s
}

// row is the state of a mutex in the table. Times are Unix ms on the database's clock.
type row struct {
	missing      bool // there is no row
	owner        string
	token        uint64
	version      uint64
	fencingToken uint64 // the column's value
	fenced       bool   // the table has fencing_token
	acquiredAt   int64
	ttlAt        int64
	transitionAt int64
	now          int64
	live         bool // the lease is running
}

func (r row) left() time.Duration { return proxy.Between(r.now, r.transitionAt) }

func (r row) ttlLeft() time.Duration { return proxy.Between(r.now, r.ttlAt) }

// lease is a lease that a statement has begun or renewed.
type lease struct {
	owner           string
	token           uint64
	version         uint64 // of the row when the tenure began; 0 = unknown
	ttl, transition time.Duration
	since           time.Time // just before the statement was sent; the windows began no earlier
	at              int64     // acquired_at in the table; 0 = unknown
}

// left returns the time until each window ends, at least 0. It counts from since, so the result is
// never longer than the time left by the database's clock.
func (l lease) left() (ttl, transition time.Duration) {
	passed := time.Since(l.since)
	return roundUp(l.ttl - passed), roundUp(l.ttl + l.transition - passed)
}

// roundUp rounds up to milliseconds, so that a client that sleeps that long does not wake early.
func roundUp(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// asRow returns the row as it was after the statement that began or renewed the lease.
func (l lease) asRow() row {
	passed := time.Since(l.since).Milliseconds()
	r := row{owner: l.owner, token: l.token, version: l.version, acquiredAt: l.at}
	r.ttlAt = r.acquiredAt + l.ttl.Milliseconds()
	r.transitionAt = r.ttlAt + l.transition.Milliseconds()
	r.now = r.acquiredAt + passed
	r.live = r.transitionAt > r.now
	return r
}

const (
	// dbNow is the database's time in Unix ms, fixed when a statement begins. It does not depend on
	// time zones.
	dbNow = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
	// dbClock is the current time of the database, even after the statement has waited for its row.
	// A lease that ended during the wait must not count as running: a client may already know of
	// its end. The session's time zone must be UTC.
	dbClock = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(3)) DIV 1000)"
	// sameMutex and sameOwner compare byte by byte, whatever the table's collation. The first part
	// of sameMutex lets the database use the primary key.
	sameMutex = "mutex = ? AND CAST(CONVERT(mutex USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"
	sameOwner = "CAST(CONVERT(owner_id USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"

	insertRow = "INSERT INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version)" +
		" VALUES (?, 0, 0, 0, '', 0)"

	// renewed is the new acquired_at of a grant or renewal. It exceeds the old value even if both
	// fall into one millisecond. Otherwise a renewed lease could look like an orphan's grant. It is
	// at most 5 ms ahead of the clock. A statement must assign acquired_at last, since each use of
	// renewed reads the old value.
	renewed = "GREATEST(" + dbNow + ", LEAST(acquired_at + 1, " + dbNow + " + 5))"
)

// read returns the row of a mutex. If lock is true, it waits until statements that began earlier
// can no longer change the row.
func (s *store) read(ctx context.Context, mutex string, lock bool) (r row, err error) {
	for i := 1; ; i++ {
		if lock {
			err = s.waits.run(ctx, mutex, func(prefix string) (err error) {
				r, err = s.readOnce(ctx, mutex, prefix, " FOR UPDATE")
				return err
			})
		} else {
			r, err = s.readOnce(ctx, mutex, "", "")
		}
		// A read changes nothing, so it may be repeated after the connection broke.
		if !isBroken(err) || ctx.Err() != nil || i == maxReads {
			return r, err
		}
	}
}

const maxReads = 3

func isBroken(err error) bool {
	var name *simba.NameError
	own := fault("")
	return err != nil && errorNumber(err) == 0 &&
		!errors.As(err, &name) && !errors.As(err, &own) && !isReadOnly(err) && !isConflict(err)
}

func (s *store) readOnce(ctx context.Context, mutex, prefix, lock string) (row, error) {
	rows, err := s.readRows(ctx, prefix, "mutex = ?"+lock, mutex)
	switch {
	case err != nil:
		return row{}, err
	case len(rows) == 0:
		return row{missing: true}, nil
	case rows[0].mutex != mutex:
		return row{}, &simba.NameError{Argument: "mutex", Problem: "the table does not distinguish it from " + rows[0].mutex + ", because of the collation of its column mutex"}
	}
	return rows[0].row, nil
}

type namedRow struct {
	mutex string
	row
}

// readRows returns the rows that match a condition. It selects all columns, so that it works with
// and without fencing_token, and notes whether the table has that column.
func (s *store) readRows(ctx context.Context, prefix, where string, args ...any) (list []namedRow, err error) {
	sent := time.Now()
	rows, err := query(ctx, s.db, prefix+"SELECT simba_mutex.*, "+dbNow+" FROM simba_mutex WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var n namedRow
	into, err := n.columns(names)
	if err != nil {
		return nil, err
	}
	s.noteColumn(n.fenced)
	for rows.Next() {
		if err := scan(rows, into...); err != nil {
			return nil, err
		}
		s.clock.learn(n.now, sent, time.Now())
		found := n
		found.derive()
		list = append(list, found)
	}
	return list, rows.Err()
}

// columns returns the destinations for a result's columns. The last column is the database's time.
func (n *namedRow) columns(names []string) (into []any, err error) {
	into = make([]any, len(names))
	last := len(names) - 1
	into[last] = &n.now
	for _, c := range []struct {
		name string
		into any
	}{
		{"mutex", &n.mutex}, {"owner_id", &n.owner}, {"version", &n.version}, {"fencing_token", &n.fencingToken},
		{"acquired_at", &n.acquiredAt}, {"ttl_at", &n.ttlAt}, {"transition_at", &n.transitionAt},
	} {
		i := slices.IndexFunc(names[:last], func(name string) bool { return strings.EqualFold(name, c.name) })
		switch {
		case i >= 0:
			into[i] = c.into
			n.fenced = n.fenced || c.name == "fencing_token"
		case c.name != "fencing_token":
			return nil, wrongTable(fmt.Errorf("Unknown column '%s'", c.name))
		}
	}
	for i, at := range into {
		if at == nil {
			into[i] = new(sql.RawBytes) // a column that the engine does not need
		}
	}
	return into, nil
}

// readOrInsert is like read, but inserts a missing row. It works in a full database if the row
// exists.
func (s *store) readOrInsert(ctx context.Context, mutex string, lock bool) (row, error) {
	for {
		r, err := s.read(ctx, mutex, lock)
		if err != nil || !r.missing {
			return r, err
		}
		err = s.waits.run(ctx, mutex, func(prefix string) error {
			_, err := s.db.ExecContext(ctx, prefix+insertRow, mutex)
			return err
		})
		if err != nil && errorNumber(err) != errDuplicate {
			return r, err
		}
	}
}

func (s *store) readClock(ctx context.Context) error {
	var now int64
	sent := time.Now()
	err := queryRow(ctx, s.db, []any{&now}, "SELECT "+dbNow)
	if err == nil {
		s.clock.learn(now, sent, time.Now())
	}
	return err
}

// tryUpdate runs an UPDATE that matches no row. It fails if the table lacks a column that a grant
// needs, or if the user lacks a privilege that a grant needs.
func (s *store) tryUpdate(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "UPDATE simba_mutex SET version = version, acquired_at = acquired_at,"+
		" ttl_at = ttl_at, transition_at = transition_at, owner_id = owner_id WHERE mutex = '' AND 1 = 0")
	return err
}

// acquire takes a free mutex, or renews the lease of its owner. ok is false if neither was
// possible.
func (s *store) acquire(ctx context.Context, r simba.AcquireRequest) (l lease, renewed, ok bool, err error) {
	ttl, both := r.TTL.Milliseconds(), (r.TTL + r.Transition).Milliseconds()
	var fenced bool
	id, ok, err := s.write(ctx, r.Mutex, func(q *statements) (string, []any) {
		fenced = q.fenced
		l = lease{owner: r.Contender, ttl: r.TTL, transition: r.Transition, since: time.Now()}
		return q.acquire, []any{r.Contender, ttl, both, r.Contender, r.Mutex, r.Mutex, s.dbDeadline(ctx), r.Contender}
	})
	l.version, renewed = id/2, id%2 == 1
	l.token = tokenOf(l.version, fenced)
	return l, renewed, ok, err
}

// guard renews the lease if the contender is the owner. If the request has a token, the tenure must
// have the same one.
func (s *store) guard(ctx context.Context, r simba.GuardRequest) (l lease, ok bool, err error) {
	ttl, both := r.TTL.Milliseconds(), (r.TTL + r.Transition).Milliseconds()
	var fenced bool
	version, ok, err := s.write(ctx, r.Mutex, func(q *statements) (string, []any) {
		fenced = q.fenced
		l = lease{owner: r.Contender, ttl: r.TTL, transition: r.Transition, since: time.Now()}
		args := []any{ttl, both, r.Mutex, r.Mutex, s.dbDeadline(ctx), r.Contender}
		if r.Token != 0 {
			return q.guard + q.ofToken, append(args, r.Token)
		}
		return q.guard + q.ofAny, args
	})
	if l.token = r.Token; l.token == 0 {
		l.token = tokenOf(version, fenced)
	}
	return l, ok, err
}

// holder is the state in which a handoff expects a mutex: held by a tenure, or free.
type holder struct {
	owner   string // "" = the mutex is free
	version uint64 // of a free mutex
	token   uint64 // of a tenure; 0 = any
	at      int64  // acquired_at of a lease, which a renewal changes; 0 = any
}

func (h holder) free() bool { return h.owner == "" }

// handOff ends the tenure of the expected holder, if there is one, and gives the mutex to a new
// owner with the lease next. If next is nil, handOff frees the mutex. If the mutex is not in the
// expected state, handOff changes nothing and ok is false. It sets the start of next before it
// sends the statement, and the token of next afterwards. The returned row has only the version and
// the token.
func (s *store) handOff(ctx context.Context, mutex string, expected holder, next *lease) (now row, ok bool, err error) {
	now.version, ok, err = s.write(ctx, mutex, func(q *statements) (string, []any) {
		now.fenced = q.fenced
		return s.handOffStatement(ctx, q, mutex, expected, next)
	})
	if now.token = tokenOf(now.version, now.fenced); now.fenced {
		now.fencingToken = now.token
	}
	if next != nil {
		next.version, next.token = now.version, now.token
	}
	return now, ok, err
}

func (s *store) handOffStatement(ctx context.Context, q *statements, mutex string, expected holder, next *lease) (query string, args []any) {
	query = q.handOff
	if next == nil {
		args = append(args, 0, 0, 0, "", mutex, mutex, s.dbDeadline(ctx))
	} else {
		next.since = time.Now()
		next.at = s.clock.latest(next.since)
		args = append(args, next.at, next.at+next.ttl.Milliseconds(), next.at+(next.ttl+next.transition).Milliseconds(), next.owner,
			mutex, mutex, s.dbDeadline(ctx), next.at-clockError)
		query += " AND " + dbNow + " >= ?"
	}
	if expected.free() {
		return query + " AND transition_at <= " + dbNow + " AND version = ?", append(args, expected.version)
	}
	query += " AND transition_at > " + dbClock + " AND " + sameOwner
	args = append(args, expected.owner)
	if expected.token != 0 {
		query += q.ofToken
		args = append(args, expected.token)
	} else {
		query += q.ofAny
	}
	if expected.at != 0 {
		query += " AND acquired_at = ?"
		args = append(args, expected.at)
	}
	return query, args
}

// clockError is how far, in ms, the computed start of a grant may be ahead of the database's clock.
// If it is further ahead, the database's clock was set back meanwhile.
const clockError = 50

func (s *store) dbDeadline(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		panic("mysql: a request without a deadline")
	}
	return s.clock.latest(deadline)
}

// exec runs a statement. It returns LAST_INSERT_ID, and whether the statement matched its row.
func (s *store) exec(ctx context.Context, query string, args ...any) (id uint64, matched bool, err error) {
	res, err := s.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, false, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return 0, false, err
	}
	last, err := res.LastInsertId()
	return uint64(last), true, err
}
