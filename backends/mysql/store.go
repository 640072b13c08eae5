package mysql

import (
	"context"
	"database/sql"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// store implements proxy.Store. Each step that changes a row is one statement, which commits by
// itself. Statements that read also check that the database accepts writes (see query).
type store struct {
	options  Options
	db       *sql.DB
	endpoint endpoint
	clock    *proxy.Clock
	tenures  tenures
	table    atomic.Pointer[table] // as of the last check
	hooks    proxy.Hooks

	reconnecting sync.Mutex // held while the idle connections are replaced
}

var _ proxy.Store = (*store)(nil)

// Close implements proxy.Store.
func (s *store) Close() error { return s.db.Close() }

// row is a row of the table.
type row struct {
	proxy.State
	mutex   string
	missing bool // there is no row
	fencing uint64
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
	selectRows = "SELECT mutex, owner_id, version, fencing_token, acquired_at, ttl_at, transition_at, " + dbNow + " FROM simba_mutex WHERE "

	// renewed is the new acquired_at of a grant or renewal, which is the Mark of the lease. It
	// exceeds the old value even if both fall into one millisecond. It is at most 5 ms ahead of the
	// clock. A statement must assign acquired_at last, since each use of renewed reads the old
	// value.
	renewed = "GREATEST(" + dbNow + ", LEAST(acquired_at + 1, " + dbNow + " + 5))"
	// renewing is true if the contender has the lease.
	renewing = "transition_at > " + dbNow + " AND " + sameOwner
	// windows begins or renews both windows now.
	windows = "ttl_at = " + renewed + " + ?, transition_at = " + renewed + " + ?, acquired_at = " + renewed
	// inTime is false after the request's deadline.
	inTime = " AND " + dbNow + " < ?"

	// takeRow grants or renews. LAST_INSERT_ID is 2 * version after a grant, and 2 * version + 1
	// after a renewal. The statement computes it before it changes other columns, because the value
	// depends on the old owner and the old end of the lease.
	takeRow = "UPDATE simba_mutex SET version = LAST_INSERT_ID(IF(" + renewing + ", version * 2 + 1, " + nextVersion + " * 2)) DIV 2" + setToken + ", " +
		windows + ", owner_id = ? WHERE " + sameMutex + inTime +
		" AND (transition_at <= " + dbNow + " OR transition_at > " + dbClock + ofAny + " AND " + sameOwner + ")"
	// renewRow and passRow set LAST_INSERT_ID to the version.
	renewRow = "UPDATE simba_mutex SET version = LAST_INSERT_ID(version), " + windows +
		" WHERE " + sameMutex + inTime + " AND " + sameOwner + " AND transition_at > " + dbClock
	passRow = "UPDATE simba_mutex SET version = LAST_INSERT_ID(" + nextVersion + " + ?)" + setToken +
		", acquired_at = ?, ttl_at = ?, transition_at = ?, owner_id = ? WHERE " + sameMutex + inTime
)

// Take implements proxy.Store.
func (s *store) Take(ctx context.Context, mutex string, l *proxy.Lease) (proxy.Taking, proxy.State, error) {
	for {
		ttl, both := l.TTL.Milliseconds(), (l.TTL + l.Transition).Milliseconds()
		id, ok, err := s.exec(ctx, takeRow, l.Owner, ttl, both, l.Owner, mutex, mutex, s.deadline(ctx), l.Owner)
		if l.Revision, l.Token = id/2, id/2*tokenUnit; ok {
			return proxy.Taking(1 + id%2), proxy.State{}, nil
		}
		var r row
		if err == nil {
			r, err = s.read(ctx, mutex, false)
		}
		if err != nil || !r.missing {
			return proxy.Held, r.State, s.fail(err)
		}
		if _, err := s.insert(ctx, mutex); err != nil {
			return proxy.Held, r.State, s.fail(err)
		}
	}
}

// insert adds the row of a mutex. It reports whether there was none.
func (s *store) insert(ctx context.Context, mutex string) (fresh bool, err error) {
	_, err = s.db.ExecContext(ctx, insertRow, mutex)
	if errorNumber(err) == errDuplicate {
		return false, nil
	}
	return err == nil, err
}

// Renew implements proxy.Store.
func (s *store) Renew(ctx context.Context, mutex string, l *proxy.Lease) (bool, error) {
	ttl, both := l.TTL.Milliseconds(), (l.TTL + l.Transition).Milliseconds()
	query, args := renewRow+ofAny, []any{ttl, both, mutex, mutex, s.deadline(ctx), l.Owner}
	if l.Token != 0 {
		query, args = renewRow+ofToken, append(args, l.Token)
	}
	version, ok, err := s.exec(ctx, query, args...)
	if l.Token == 0 {
		l.Token = version * tokenUnit
	}
	return ok, s.fail(err)
}

// Pass implements proxy.Store. The Mark of a tenure is the start of its lease, computed from the
// estimate of the database's clock.
func (s *store) Pass(ctx context.Context, mutex string, from proxy.From, to *proxy.Lease) (version uint64, ok bool, err error) {
	if from.Free() && from.Revision == 0 { // there may be no row
		_, err = s.insert(ctx, mutex)
	}
	if err == nil {
		version, ok, err = s.pass(ctx, mutex, from, to)
	}
	return version, ok, s.fail(err)
}

func (s *store) pass(ctx context.Context, mutex string, from proxy.From, to *proxy.Lease) (version uint64, ok bool, err error) {
	query, args := passRow, []any{0, 0, 0, 0, "", mutex, mutex, s.deadline(ctx)}
	if to != nil {
		if !from.Free() {
			args[0] = 1 // one tenure ends and another begins
		}
		at := s.clock.Latest(to.Since)
		to.Mark = at
		args[1], args[2], args[3], args[4] = at, at+to.TTL.Milliseconds(), at+(to.TTL+to.Transition).Milliseconds(), to.Owner
		query, args = query+" AND "+dbNow+" >= ?", append(args, at-clockError)
	}
	if from.Free() {
		query, args = query+" AND transition_at <= "+dbNow+" AND version = ?", append(args, from.Revision)
	} else {
		query, args = query+" AND transition_at > "+dbClock+" AND "+sameOwner+ofToken, append(args, from.Owner, from.Token)
		if from.Mark != 0 {
			query, args = query+" AND acquired_at = ?", append(args, from.Mark)
		}
	}
	version, ok, err = s.exec(ctx, query, args...)
	if to != nil {
		to.Revision, to.Token = version, version*tokenUnit
	}
	return version, ok, err
}

// clockError is how far, in ms, the computed start of a grant may be ahead of the database's clock.
// If it is further ahead, the database's clock was set back meanwhile.
const clockError = 50

// deadline returns the end of a context on the database's clock.
func (s *store) deadline(ctx context.Context) int64 {
	end, _ := ctx.Deadline()
	return s.clock.Latest(end)
}

// Horizon implements proxy.Store. A statement that began before its deadline may wait for the table
// and for a row, and the database checks once a second whether the wait has been too long.
func (s *store) Horizon(t time.Time) int64 {
	return s.clock.Latest(t) + (2*tableWait + 2*lockWait).Milliseconds() + 500
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

// Read implements proxy.Store.
func (s *store) Read(ctx context.Context, mutex string, settled bool) (proxy.State, error) {
	r, err := s.read(ctx, mutex, settled)
	return r.State, s.fail(err)
}

// readOnce returns the row of a mutex. If lock is true, it waits until statements that began
// earlier can no longer change the row.
func (s *store) readOnce(ctx context.Context, mutex string, lock bool) (r row, err error) {
	where := "mutex = ?"
	if lock {
		where += " FOR UPDATE"
	}
	rows, err := s.readRows(ctx, where, mutex)
	switch {
	case err != nil:
		return r, err
	case len(rows) == 0:
		r.missing, r.Now = true, s.clock.Latest(time.Now())
		return r, ctx.Err()
	case rows[0].mutex != mutex:
		return r, &simba.NameError{Argument: "mutex", Problem: "the table does not distinguish it from " + rows[0].mutex + ", because of the collation of its column mutex"}
	}
	return rows[0], nil
}

func (s *store) readRows(ctx context.Context, where string, args ...any) (list []row, err error) {
	sent := time.Now()
	rows, err := query(ctx, s.db, selectRows+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := scan(rows, &r.mutex, &r.Owner, &r.Revision, &r.fencing, &r.AcquiredAt, &r.TTLAt, &r.TransitionAt, &r.Now); err != nil {
			return nil, err
		}
		s.clock.Learn(r.Now, sent, time.Now())
		r.derive()
		list = append(list, r)
	}
	return list, rows.Err()
}

// crcOfMutex orders a scan. The order does not change when rows come and go. The database has to
// read and sort the whole table for it.
const crcOfMutex = "CRC32(CONVERT(mutex USING utf8mb4))"

// ScanKey implements proxy.Store.
func (s *store) ScanKey(mutex string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(mutex))) }

// Scan implements proxy.Store.
func (s *store) Scan(ctx context.Context, from, to uint64, limit int) ([]proxy.Scanned, error) {
	where, args := "transition_at > "+dbNow, []any(nil)
	if from > 0 || limit > 0 {
		where, args = where+" AND "+crcOfMutex+" BETWEEN ? AND ? ORDER BY "+crcOfMutex+", mutex", []any{from, to}
	}
	if limit > 0 {
		where, args = where+" LIMIT ?", append(args, limit)
	}
	rows, err := s.readRows(ctx, where, args...)
	list := make([]proxy.Scanned, 0, len(rows))
	for _, r := range rows {
		if err == nil && limit == 0 && r.lacksToken() {
			r, err = s.read(ctx, r.mutex, false)
		}
		list = append(list, proxy.Scanned{Mutex: r.mutex, Key: s.ScanKey(r.mutex), State: r.State})
	}
	return list, s.fail(err)
}

// Ping implements proxy.Store. It reads the database's clock.
func (s *store) Ping(ctx context.Context) error {
	var now int64
	sent := time.Now()
	err := queryRow(ctx, s.db, []any{&now}, "SELECT "+dbNow)
	if err == nil {
		s.clock.Learn(now, sent, time.Now())
	}
	return s.fail(err)
}

// Watch implements proxy.Store. The store learns of no changes: see proxy.Options.Poll.
func (s *store) Watch(string) {}

// Unwatch implements proxy.Store.
func (s *store) Unwatch(string) {}

// CheckNames implements proxy.Store.
func (s *store) CheckNames(mutex, contender string) error {
	t := s.table.Load()
	if err := t.mutex.check("mutex", mutex); err != nil {
		return err
	}
	return t.owner.check("contender", contender)
}
