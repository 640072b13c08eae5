package mysql

import (
	"context"
	"strings"
)

// The token of a tenure is the row's fencing_token where the table has that column, as Simba 3.3 and
// later make it, and the row's version where it has not.
//
// Every contender counts the version up when it begins or ends a tenure, and on the JVM when it
// renews. Simba 3.3 and later add 1 to fencing_token when a tenure begins, if simba.jdbc.fencing is on.
// Other contenders on the JVM leave it; comments here call them those up to 3.2.
// So fencing_token says which tenure it is of:
//
//	fencing_token               the token
//	version * tokenUnit         fencing_token: a grant or release of ours
//	version * tokenUnit + 1     fencing_token: of an owner up to 3.2, given by a server
//	version * tokenUnit + 2, 0  version: the row is from before the column
//	a multiple below that       none: an owner up to 3.2 follows a grant or release of ours
//	else                        fencing_token: of an owner on the JVM
//
// An owner without a token gets one from the first server that reads its row (readBy). All are larger
// than those before, since fencing_token is below (version + 1) * tokenUnit: 3.3 counts the version up
// whenever it counts fencing_token up. In decimal a token of ours shows the version. It stays
// below 2^53 until the version needs more than 33 bits. After a million tenures of 3.3 in a row its token
// is a multiple too: such an owner gets another token, which it learns when it renews.
//
// Statements notice when the column has come or gone (write, readRows). They write tokenUnit out.
const (
	tokenUnit    = 1_000_000
	assignedMark = 1 // remainder of the token that an owner up to 3.2 is given
	legacyMark   = 2 // remainder of fencing_token in a row from before the column
)

// judge sets token and live. The start of a lease may lie a little after the reading of the
// clock. The remaining lease never exceeds the requested one.
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

// isOlder reports whether the row has nothing in fencing_token that counts.
func (r row) isLegacy() bool {
	return r.fencingToken == 0 || r.fencingToken%tokenUnit == legacyMark && r.fencingToken/tokenUnit == r.version
}

// isBare reports whether the row's owner has no token.
func (r row) lacksToken() bool {
	return r.fenced && r.owner != "" && r.fencingToken%tokenUnit == 0 && r.fencingToken/tokenUnit < r.version
}

// tokenOf is the token that a grant or release of ours has with a version.
func tokenOf(version uint64, fenced bool) uint64 {
	if fenced {
		return version * tokenUnit
	}
	return version
}

// versionOf is the version at which a tenure of the mutex began, by its token. If the owner is of Simba
// 3.3 or later it may be less.
func (r row) versionOf(token uint64) uint64 {
	if token > r.version {
		return token / tokenUnit
	}
	return token
}

// statements are those that change a row, for a table with fencing_token or without.
type statements struct {
	fenced bool
	// acquire grants or renews. What it did comes back as LAST_INSERT_ID: twice the version, and 1 if
	// it was a renewal. That is assigned first, from the owner and the end before the statement.
	acquire string
	guard   string // LAST_INSERT_ID is the version
	handOff string // LAST_INSERT_ID is the version
	ofToken string // a condition: the tenure has this token
	ofAny   string // a condition if the token is not known: the tenure has the token of its version
}

const (
	// renewing is true of a row whose lease the contender has.
	renewing = "transition_at > " + dbNow + " AND " + sameOwner
	// windows of a lease that begins or is renewed now.
	windows = "ttl_at = " + renewed + " + ?, transition_at = " + renewed + " + ?, acquired_at = " + renewed
	// inTime is false after the request's deadline.
	inTime = " AND " + dbNow + " < ?"
)

var (
	// On a table without fencing_token the last condition is true. With it, the name is ambiguous, and
	// the statement an error: a server that does not know of the column must begin no tenure, since its
	// token could be given to a contender on the JVM later. The outer SELECT is there because a statement
	// may not read the table that it changes otherwise. information_schema takes more than twice as long.
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

// newStatements completes q. next is the version of the next tenure, mark an assignment that follows
// that of the version, and always a condition that each statement has.
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

// giveToken gives an owner without a token of its own one. It does nothing if anybody has changed the
// row meanwhile.
const assignToken = "UPDATE simba_mutex SET fencing_token = version * 1000000 + 1 WHERE " + sameMutex + " AND version = ? AND fencing_token = ?"

// write runs a statement that changes the row of a mutex, built for the table as it was met
// last. If fencing_token has come or gone since, the statement is an error, and is built anew.
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

// isOtherTable reports whether a statement met a table that has fencing_token, or has it not, against
// what it was built for.
func isOtherTable(err error) bool {
	n := errorNumber(err)
	return (n == errAmbiguous || n == errNoColumn) && strings.Contains(err.Error(), "fencing_token")
}

// read is store.read for whoever needs the token.
func (b *Backend) read(ctx context.Context, mutex string) (row, error) {
	return b.readBy(ctx, mutex, false, b.store.read)
}

// readBy reads a row. If its owner has no token of its own, as far as this server knows, it gets one; of
// several servers that try, one does it.
func (b *Backend) readBy(ctx context.Context, mutex string, lock bool, read func(context.Context, string, bool) (row, error)) (row, error) {
	for range attempts {
		since := b.tenures.version(mutex)
		r, err := read(ctx, mutex, lock)
		if err != nil || b.hasToken(mutex, r, since) {
			return r, err
		}
		_, ok, err := b.store.write(ctx, mutex, func(*statements) (string, []any) {
			return assignToken, []any{mutex, mutex, r.version, r.fencingToken}
		})
		if err != nil && !isOtherTable(err) { // else the column has gone
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

// hasToken reports whether a row's owner has a token of its own. A row with 0 may be of a tenure of ours
// from before the column, until raise is done.
func (b *Backend) hasToken(mutex string, r row, since uint64) bool {
	if r.lacksToken() {
		return r.fencingToken == 0 && b.store.backfillPending.Load()
	}
	return b.tenures.note(mutex, r, since)
}
