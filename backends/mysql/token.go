package mysql

import (
	"context"
	"strings"
)

// The token of a tenure is the row's fencing_token where the table has that column, as Simba 3.3 and
// later make it, and the row's version where it has not.
//
// With the column, a new tenure of this package sets both to one more than the larger of them, and so
// does a release. Renewals leave both. So a tenure keeps its token if the column comes or goes while
// it runs, and no later one gets a token that was given before: version is never below
// fencing_token, since contenders on the JVM count it up whenever they count fencing_token up.
// An owner of Simba up to 3.2 leaves fencing_token. Nothing in the row tells it from a 3.3 owner that
// has renewed, so only a server that saw the tenure before gives it a token of its own (tenures).
// A fencing_token of 0 is of a row that nobody has continued since the column was added: its token
// is the version. Backend.raise writes it there.
//
// A statement that begins a tenure, and any that reads or sets fencing_token, notices when the column
// has come or gone (write, readRows).

// statements are those that change a row, for a table with fencing_token or without.
type statements struct {
	// acquire grants or renews. What it did comes back as LAST_INSERT_ID: twice the token, and 1 if
	// it was a renewal. That is assigned first, from the owner and the end before the statement.
	acquire string
	guard   string // LAST_INSERT_ID is the token
	pass    string // LAST_INSERT_ID is the version, and the token
	grants  string // a condition of pass that gives the mutex to somebody
	ofToken string // a condition: the tenure has this token
	ofAny   string // a condition if the token is not known
}

const (
	// renewing is true of a row whose lease the contender has.
	renewing = "transition_at > " + dbNow + " AND " + sameOwner
	// windows of a lease that begins or is renewed now.
	windows = "ttl_at = " + renewed + " + ?, transition_at = " + renewed + " + ?, acquired_at = " + renewed
	// inTime is false after the request's deadline.
	inTime = " AND " + dbNow + " < ?"

	// noColumn is true on a table without fencing_token. With it, the name is ambiguous, and the
	// statement an error: a server that does not know of the column must begin no tenure, since its
	// token could be given to a contender on the JVM later. The outer SELECT is there because a statement
	// may not read the table that it changes otherwise. information_schema takes more than twice as long.
	noColumn = " AND (SELECT one FROM (SELECT fencing_token AS one FROM (SELECT 1 AS fencing_token) AS ours" +
		" LEFT JOIN simba_mutex ON FALSE LIMIT 1) AS found) = 1"

	// continued is the token of a row with fencing_token, and following that of the next tenure.
	continued = "IF(fencing_token = 0, version, fencing_token)"
	following = "(GREATEST(fencing_token, version) + 1)"
	// itsOwn is true if the token is sure to be of the tenure that runs. An owner of Simba up to 3.2
	// leaves the fencing_token of the tenure before, and counts version up.
	itsOwn = "fencing_token IN (0, version)"
)

var byVersion = statements{
	acquire: "UPDATE simba_mutex SET version = LAST_INSERT_ID(version * 2 + IF(" + renewing + ", 1, 2)) DIV 2, " +
		windows + ", owner_id = ? WHERE " + sameMutex + inTime +
		" AND (transition_at <= " + dbNow + " OR transition_at > " + dbClock + " AND " + sameOwner + ")" + noColumn,
	guard: "UPDATE simba_mutex SET version = LAST_INSERT_ID(version), " + windows +
		" WHERE " + sameMutex + inTime + " AND " + sameOwner + " AND transition_at > " + dbClock,
	pass: "UPDATE simba_mutex SET version = LAST_INSERT_ID(version + 1)," +
		" acquired_at = ?, ttl_at = ?, transition_at = ?, owner_id = ? WHERE " + sameMutex + inTime,
	grants:  noColumn,
	ofToken: " AND version = ?",
}

// Their version is assigned after fencing_token, of which it takes the new value.
var byToken = statements{
	acquire: "UPDATE simba_mutex SET fencing_token = LAST_INSERT_ID(IF(" + renewing + ", " + continued + " * 2 + 1, " + following + " * 2)) DIV 2," +
		" version = GREATEST(version, fencing_token), " +
		windows + ", owner_id = ? WHERE " + sameMutex + inTime +
		" AND (transition_at <= " + dbNow + " OR transition_at > " + dbClock + " AND " + itsOwn + " AND " + sameOwner + ")",
	guard: "UPDATE simba_mutex SET fencing_token = LAST_INSERT_ID(" + continued + "), " + windows +
		" WHERE " + sameMutex + inTime + " AND " + sameOwner + " AND transition_at > " + dbClock,
	pass: "UPDATE simba_mutex SET fencing_token = LAST_INSERT_ID" + following + ", version = fencing_token," +
		" acquired_at = ?, ttl_at = ?, transition_at = ?, owner_id = ? WHERE " + sameMutex + inTime,
	ofToken: " AND " + continued + " = ?",
	ofAny:   " AND " + itsOwn,
}

// ownToken gives a tenure that has the token of another one its own: the version, which each new
// tenure counts up. It does nothing if anybody has changed the row meanwhile.
const ownToken = "UPDATE simba_mutex SET fencing_token = version WHERE " + sameMutex + " AND version = ? AND fencing_token = ?"

// write runs a statement that changes the row of a mutex, built for the table as it was met
// last. If fencing_token has come or gone since, the statement is an error, and is built anew.
func (s *store) write(ctx context.Context, mutex string, build func(*statements) (string, []any)) (id uint64, ok bool, err error) {
	err = s.waits.run(ctx, mutex, func(patience string) error {
		for range attempts {
			q := &byVersion
			if s.fenced.Load() {
				q = &byToken
			}
			query, args := build(q)
			id, ok, err = s.exec(ctx, patience+query, args...)
			if !isOtherTable(err) {
				break
			}
			s.meet(errorNumber(err) == errAmbiguous)
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

// readBy reads a row. If its tenure has no token of its own, as this server knows, it gets one; of
// several servers that try, one does it.
func (b *Backend) readBy(ctx context.Context, mutex string, lock bool, read func(context.Context, string, bool) (row, error)) (row, error) {
	for range attempts {
		since := b.tenures.version(mutex)
		r, err := read(ctx, mutex, lock)
		if err != nil || b.tenures.see(mutex, r, since) {
			return r, err
		}
		_, ok, err := b.store.write(ctx, mutex, func(*statements) (string, []any) {
			return ownToken, []any{mutex, mutex, r.version, r.fencing}
		})
		if err != nil && !isOtherTable(err) { // else the column has gone
			return r, err
		}
		if ok {
			r.fencing, r.token = r.version, r.version
			b.tenures.see(mutex, r, since)
			return r, nil
		}
	}
	return row{}, errRestless
}
