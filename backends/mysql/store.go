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

// store is the table: each method is one statement, which commits by itself, or the
// same one again if it lost to another transaction (lockWaits). One that reads comes with
// the proof that the server takes writes (query).
type store struct {
	db              *sql.DB
	table           table
	clock           *clock
	waits           *lockWaits
	fenced          *atomic.Bool  // the table had a fencing_token when a statement last met it
	backfillPending *atomic.Bool  // a row with fencing_token 0 may be from before the column: raise is not done
	columnAdded     chan struct{} // wakes Backend.raise; it has room for one
}

// newStore takes the time limit of requests.
func newStore(db *sql.DB, t table, timeout time.Duration) store {
	s := store{
		db: db, table: t, clock: newClock(), waits: newLockWaits(timeout),
		fenced: new(atomic.Bool), backfillPending: new(atomic.Bool), columnAdded: make(chan struct{}, 1),
	}
	s.backfillPending.Store(true)
	s.noteColumn(t.fenced)
	return s
}

// row is the state of a mutex in the table. Times are Unix ms of the database.
type row struct {
	missing      bool // nobody has asked for the mutex yet
	owner        string
	token        uint64
	version      uint64
	fencingToken uint64 // fencing_token, as the table has it
	fenced       bool   // the table has that column
	acquiredAt   int64
	ttlAt        int64
	transitionAt int64
	now          int64
	live         bool // the lease runs
}

// left is what remains of the lease.
func (r row) left() time.Duration { return proxy.Remaining(r.now, r.transitionAt) }

func (r row) ttlLeft() time.Duration { return proxy.Remaining(r.now, r.ttlAt) }

// lease is one that a statement has just begun or renewed.
type lease struct {
	owner           string
	token           uint64
	version         uint64 // of the row when the tenure began; 0 = not known
	ttl, transition time.Duration
	since           time.Time // the windows began then or a little later
	at              int64     // acquired_at in the table; 0 = not known
}

// left is what remains of both windows, 0 when they are over. A lease is counted
// from the moment of asking, so what the database took comes off.
func (l lease) left() (ttl, transition time.Duration) {
	passed := time.Since(l.since)
	return roundUp(l.ttl - passed), roundUp(l.ttl + l.transition - passed)
}

// roundUp makes whole milliseconds, so that who sleeps for so long does not wake
// before the end.
func roundUp(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// asRow is the row that the statement has left.
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
	// dbNow is the database's time in Unix ms, fixed when a statement begins. It does
	// not depend on time zones and their nights of 25 hours.
	dbNow = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
	// dbClock is the time when it is read: after a statement has waited for its row. A
	// lease that ended in that wait must not be found running: someone may have been
	// told that it has ended. It needs the session's time zone to be UTC.
	dbClock = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(3)) DIV 1000)"
	// sameMutex and sameOwner compare byte by byte, whatever the collation of the
	// table; the first part of sameMutex is for the primary key.
	sameMutex = "mutex = ? AND CAST(CONVERT(mutex USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"
	sameOwner = "CAST(CONVERT(owner_id USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"

	insertRow = "INSERT INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version)" +
		" VALUES (?, 0, 0, 0, '', 0)"

	// renewed is the start of windows that are set anew now. It is later than the one
	// before, even within the same millisecond: so a grant whose owner has renewed it
	// is not taken for one that nobody knows of. It never runs ahead of the clock by
	// more than 5 ms. A statement sets the column last, since it is of its own old value.
	renewed = "GREATEST(" + dbNow + ", LEAST(acquired_at + 1, " + dbNow + " + 5))"
)

// read returns the row of a mutex. With lock it waits until no statement that began
// before it can change the row any more.
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
		// It changes nothing, so it is sent again when its connection broke.
		if !isBroken(err) || ctx.Err() != nil || i == reads {
			return r, err
		}
	}
}

// reads is how often a statement is sent that changes nothing.
const reads = 3

// isBroken reports whether an error says that the database could not be asked.
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
		return row{}, &simba.NameError{Argument: "mutex", Problem: "the database's table takes it for " + rows[0].mutex + ", by the collation of its column mutex"}
	}
	return rows[0].row, nil
}

// namedRow is a row and whose it is.
type namedRow struct {
	mutex string
	row
}

// readRows returns the rows that a condition selects. It asks for all columns, so that it works on a
// table with fencing_token and on one without, and takes note of which one it met.
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

// columns returns where to scan the columns of a result to, the last of which is the time.
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
			into[i] = new(sql.RawBytes) // of no interest
		}
	}
	return into, nil
}

// readOrMake is read that makes the row if it is missing. A row that is there needs no
// room for another.
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

// readClock asks for nothing but the time.
func (s *store) readClock(ctx context.Context) error {
	var now int64
	sent := time.Now()
	err := queryRow(ctx, s.db, []any{&now}, "SELECT "+dbNow)
	if err == nil {
		s.clock.learn(now, sent, time.Now())
	}
	return err
}

// tryUpdate updates no row. It fails if the table or the rights to it are not what a
// grant needs.
func (s *store) tryUpdate(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "UPDATE simba_mutex SET version = version, acquired_at = acquired_at,"+
		" ttl_at = ttl_at, transition_at = transition_at, owner_id = owner_id WHERE mutex = '' AND 1 = 0")
	return err
}

// acquire takes a mutex that is free, or renews the lease of its owner. ok is false
// if neither was possible.
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

// guard renews the lease of its owner; a token other than 0 must be the tenure's.
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

// holder is whom a mutex is passed on from: a tenure, or nobody.
type holder struct {
	owner   string // "" = it is free
	version uint64 // of a free mutex
	token   uint64 // of a tenure; 0 = any
	at      int64  // acquired_at of a tenure, so that a renewed one does not match; 0 = any
}

func (h holder) free() bool { return h.owner == "" }

// pass gives a mutex from the holder to the lease's owner, or to nobody if to is nil.
// It sets to's token, and before the statement is sent its start. ok is false if the
// mutex is not the holder's any more. The row that it returns has version and token only.
func (s *store) handOff(ctx context.Context, mutex string, from holder, to *lease) (now row, ok bool, err error) {
	now.version, ok, err = s.write(ctx, mutex, func(q *statements) (string, []any) {
		now.fenced = q.fenced
		return s.handOffStatement(ctx, q, mutex, from, to)
	})
	if now.token = tokenOf(now.version, now.fenced); now.fenced {
		now.fencingToken = now.token
	}
	if to != nil {
		to.version, to.token = now.version, now.token
	}
	return now, ok, err
}

// passing is the statement of pass, and its arguments.
func (s *store) handOffStatement(ctx context.Context, q *statements, mutex string, from holder, to *lease) (query string, args []any) {
	query = q.handOff
	if to == nil {
		args = append(args, 0, 0, 0, "", mutex, mutex, s.dbDeadline(ctx))
	} else {
		to.since = time.Now()
		to.at = s.clock.latest(to.since)
		args = append(args, to.at, to.at+to.ttl.Milliseconds(), to.at+(to.ttl+to.transition).Milliseconds(), to.owner,
			mutex, mutex, s.dbDeadline(ctx), to.at-clockError)
		query += " AND " + dbNow + " >= ?"
	}
	if from.free() {
		return query + " AND transition_at <= " + dbNow + " AND version = ?", append(args, from.version)
	}
	query += " AND transition_at > " + dbClock + " AND " + sameOwner
	args = append(args, from.owner)
	if from.token != 0 {
		query += q.ofToken
		args = append(args, from.token)
	} else {
		query += q.ofAny
	}
	if from.at != 0 {
		query += " AND acquired_at = ?"
		args = append(args, from.at)
	}
	return query, args
}

// clockError is how many ms the start that a grant is given beforehand may lie after
// the statement's own time. More means that the database's clock was set.
const clockError = 50

// fence is the database's time at which a request's deadline ends.
func (s *store) dbDeadline(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		panic("mysql: a request without a deadline")
	}
	return s.clock.latest(deadline)
}

// exec returns LAST_INSERT_ID and whether the statement has found its row.
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
