package mysql

import (
	"context"
	"strings"
	"time"
)

// The token of a tenure is the row's fencing_token if the table has that column, as in Simba 3.3
// and later. Otherwise it is the row's version.
//
// Every contender increments version when it begins or ends a tenure. A contender on the JVM
// (Simba's own code) also does so when it renews. With the setting simba.jdbc.fencing, Simba 3.3
// and later increment fencing_token when a tenure begins. Other contenders on the JVM leave it
// unchanged; the table below calls them "up to 3.2". So fencing_token shows which program set it:
//
//	fencing_token               the token is     because
//	version * tokenUnit         fencing_token    this engine granted or released the mutex
//	version * tokenUnit + 1     fencing_token    this engine assigned it to an owner up to 3.2
//	version * tokenUnit + 2     version          the row is older than the column
//	0                           version          the row is older than the column
//	n * tokenUnit, n < version  not assigned yet an owner up to 3.2 came after this engine's step
//	any other                   fencing_token    a contender on the JVM has set it
//
// The first server that reads the row of an owner without a token assigns one (readWithToken). The
// assigned token is larger than all earlier tokens. Simba 3.3 increments version whenever it
// increments fencing_token, so fencing_token is always below (version + 1) * tokenUnit. The owner
// without a token has incremented version once more.
//
// The engine's tokens are below 2^53 until the version needs more than 33 bits. After a million
// tenures of 3.3 in a row, a token that 3.3 has set can be n * tokenUnit too. Then a server assigns
// another token, which the owner learns when it renews.
//
// Statements notice if the column was added or dropped (see write and readRows). They contain
// tokenUnit as a literal.
const (
	tokenUnit    = 1_000_000
	assignedMark = 1 // fencing_token % tokenUnit, if this engine assigned it to an owner up to 3.2
	legacyMark   = 2 // fencing_token % tokenUnit, if the row is older than the column
)

// derive sets token and live. acquiredAt may be later than now, by up to clockError. Then derive
// sets now to acquiredAt, so that the lease never has more time left than its request wanted.
func (r *row) derive() {
	switch {
	case r.isLegacy():
		r.token = r.version
	case r.fencingToken%tokenUnit == 0:
		r.token = r.version * tokenUnit
	default:
		r.token = r.fencingToken
	}
	r.live = r.transitionAt > r.now
	if ahead := r.acquiredAt - r.now; ahead > 0 && ahead <= clockError {
		r.now = r.acquiredAt
	}
}

// isLegacy reports whether the row's version is the token: the table has no column fencing_token,
// or the row is older than that column.
func (r row) isLegacy() bool {
	return r.fencingToken == 0 || r.fencingToken%tokenUnit == legacyMark && r.fencingToken/tokenUnit == r.version
}

// lacksToken reports whether the row shows that its owner has no token of its own. The
// fencing_token is then that of an earlier grant or release by this engine.
func (r row) lacksToken() bool {
	return r.fenced && r.owner != "" && r.fencingToken%tokenUnit == 0 && r.fencingToken/tokenUnit < r.version
}

// tokenOf returns the token of a grant or release by this engine. version is the row's version
// after that step. fenced says whether the table has fencing_token.
func tokenOf(version uint64, fenced bool) uint64 {
	if fenced {
		return version * tokenUnit
	}
	return version
}

// versionOf returns the version at which the tenure with a token began. If Simba 3.3 or later set
// the token, the result may be smaller.
func (r row) versionOf(token uint64) uint64 {
	if token > r.version {
		return token / tokenUnit
	}
	return token
}

// statements are the statements that change a row, for a table with or without fencing_token.
type statements struct {
	fenced bool
	// acquire grants or renews. LAST_INSERT_ID is 2 * version after a grant, and 2 * version + 1
	// after a renewal. The statement computes it before it changes other columns, because the value
	// depends on the old owner and the old end of the lease.
	acquire string
	guard   string // LAST_INSERT_ID is the version
	handOff string // LAST_INSERT_ID is the version
	ofToken string // condition for a statement with a token: it is the tenure's token
	ofAny   string // condition for a statement without one: the tenure's token is tokenOf(version)
}

const (
	// renewing is true if the contender has the lease.
	renewing = "transition_at > " + dbNow + " AND " + sameOwner
	// windows begins or renews both windows now.
	windows = "ttl_at = " + renewed + " + ?, transition_at = " + renewed + " + ?, acquired_at = " + renewed
	// inTime is false after the request's deadline.
	inTime = " AND " + dbNow + " < ?"
)

var (
	// byVersion is for a table without fencing_token. In such a table, the last condition of each
	// statement is true. If the table has the column, the name fencing_token is ambiguous in that
	// condition, and the statement fails. So a server that does not know of the column cannot
	// grant. Otherwise a contender on the JVM could get the same token later. The outer SELECT is
	// needed because a statement may not read the table that it changes. A query of
	// information_schema would take more than twice as long.
	byVersion = newStatements(statements{ofToken: " AND version = ?"}, "(version + 1)", "",
		" AND (SELECT one FROM (SELECT fencing_token AS one FROM (SELECT 1 AS fencing_token) AS ours"+
			" LEFT JOIN simba_mutex ON FALSE LIMIT 1) AS found) = 1")
	byToken = newStatements(statements{
		fenced: true,
		ofAny:  " AND fencing_token = version * 1000000",
		ofToken: " AND CASE WHEN fencing_token = 0 OR fencing_token % 1000000 = 2 AND fencing_token DIV 1000000 = version" +
			" THEN version WHEN fencing_token % 1000000 = 0 THEN version * 1000000 ELSE fencing_token END = ?",
	}, "(GREATEST(version, fencing_token DIV 1000000) + 1)", ", fencing_token = version * 1000000", "")
)

// newStatements completes q. next is an expression for the version of the next tenure. mark is an
// assignment that comes after the assignment of the version. always is a condition of every
// statement.
func newStatements(q statements, next, mark, always string) statements {
	q.acquire = "UPDATE simba_mutex SET version = LAST_INSERT_ID(IF(" + renewing + ", version * 2 + 1, " + next + " * 2)) DIV 2" + mark + ", " +
		windows + ", owner_id = ? WHERE " + sameMutex + inTime +
		" AND (transition_at <= " + dbNow + " OR transition_at > " + dbClock + q.ofAny + " AND " + sameOwner + ")" + always
	q.guard = "UPDATE simba_mutex SET version = LAST_INSERT_ID(version), " + windows +
		" WHERE " + sameMutex + inTime + " AND " + sameOwner + " AND transition_at > " + dbClock + always
	q.handOff = "UPDATE simba_mutex SET version = LAST_INSERT_ID(" + next + ")" + mark +
		", acquired_at = ?, ttl_at = ?, transition_at = ?, owner_id = ? WHERE " + sameMutex + inTime + always
	return q
}

// assignToken assigns a token to an owner that has none. It does nothing if the row has changed.
const assignToken = "UPDATE simba_mutex SET fencing_token = version * 1000000 + 1 WHERE " + sameMutex + " AND version = ? AND fencing_token = ?"

// write runs a statement that changes the row of a mutex. build makes the statement for a table
// with or without fencing_token. write builds it again if that column was added or dropped.
func (s *store) write(ctx context.Context, mutex string, build func(*statements) (string, []any)) (id uint64, ok bool, err error) {
	err = s.waits.run(ctx, mutex, func(prefix string) error {
		for range attempts {
			q := &byVersion
			if s.fenced.Load() {
				q = &byToken
			}
			query, args := build(q)
			id, ok, err = s.exec(ctx, prefix+query, args...)
			if !isOtherTable(err) {
				break
			}
			s.noteColumn(errorNumber(err) == errAmbiguous)
		}
		return err
	})
	return id, ok, err
}

// isOtherTable reports whether a statement failed because fencing_token was added or dropped.
func isOtherTable(err error) bool {
	n := errorNumber(err)
	return (n == errAmbiguous || n == errNoColumn) && strings.Contains(err.Error(), "fencing_token")
}

// read reads the row of a mutex. Unlike store.read, it assigns a token to an owner that has none.
func (b *Backend) read(ctx context.Context, mutex string) (row, error) {
	return b.readWithToken(ctx, mutex, false, b.store.read)
}

// readWithToken reads a row by calling read with mutex and lock. If hasToken reports that the row's
// owner has no token of its own, readWithToken assigns one. If several servers try, one succeeds.
func (b *Backend) readWithToken(ctx context.Context, mutex string, lock bool, read func(context.Context, string, bool) (row, error)) (row, error) {
	for range attempts {
		since := b.tenures.version(mutex)
		r, err := read(ctx, mutex, lock)
		if err == nil && !lock && r.owner != "" && !r.live {
			r, err = b.awaitCommit(ctx, mutex, r, read)
		}
		if err != nil || b.hasToken(mutex, r, since) {
			return r, err
		}
		_, ok, err := b.store.write(ctx, mutex, func(*statements) (string, []any) {
			return assignToken, []any{mutex, mutex, r.version, r.fencingToken}
		})
		// If the column was dropped meanwhile, the next attempt reads a row without it.
		if err != nil && !isOtherTable(err) {
			return r, err
		}
		if ok {
			r.fencingToken = r.version*tokenUnit + assignedMark
			r.token = r.fencingToken
			b.tenures.note(mutex, r, since)
			return r, nil
		}
	}
	return row{}, errKeepsChanging
}

// commitWait is how long awaitCommit waits for a transaction that has locked the row.
const commitWait = 500 * time.Millisecond

// awaitCommit reads the row of an ended lease again. A statement that renewed the lease in time may
// not have committed yet. If that statement's transaction keeps the row locked for long,
// awaitCommit returns the row as the caller had read it.
func (b *Backend) awaitCommit(ctx context.Context, mutex string, was row, read func(context.Context, string, bool) (row, error)) (row, error) {
	for began := time.Now(); time.Since(began) < commitWait && !b.store.waits.isLocked(mutex); {
		r, err := read(withoutLockWait(ctx), mutex, true)
		if !isConflict(err) {
			return r, err
		}
	}
	return was, nil
}

// hasToken reports whether a row's owner has a token of its own, as far as this server knows. since
// is what tenures.version returned before the row was read. Until the backfill is done, a row whose
// fencing_token is 0 may be older than the column. The token of such a row is its version.
func (b *Backend) hasToken(mutex string, r row, since uint64) bool {
	if r.lacksToken() {
		return r.fencingToken == 0 && b.store.backfillPending.Load()
	}
	return b.tenures.note(mutex, r, since)
}
