package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Only a primary's rows are true. A replica may lag behind, and a primary that was
// replaced stands still while its old connections live on. Nothing but a write notices,
// so each statement that reads is sent behind another, in one packet, that reads whether
// the server takes writes. The server executes them in this order, on one connection.
//
// So the server took writes at an instant after the request was sent, and the rows are
// read after that instant. If it is demoted in between, the rows are those that it had
// at its demotion, or newer ones that the next primary sent it. Both are states of the
// mutex between the sending and the answer, which is what an answer promises. The
// reverse order would not do: rows of a lagging replica, then its promotion. A single
// statement would not do either, since the database may read its variables after the
// rows. A wait for a row's lock in between changes nothing.
//
// A primary that was cut off, but is not read_only, cannot be told from a healthy one.

// proof reads whether the server takes writes. On MySQL super_read_only implies
// read_only. innodb_read_only is how the readers of Amazon Aurora are known.
const writableCheck = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only; "

// errNotPrimary is why a read fails whose server takes no writes.
var errNotPrimary = errors.New("the database is read-only: it is not the primary, or not any more")

// query runs a statement that reads, on a server that takes writes; on another it
// returns errNotPrimary.
func query(ctx context.Context, db *sql.DB, statement string, args ...any) (*sql.Rows, error) {
	rows, err := db.QueryContext(ctx, writableCheck+statement, args...)
	if err != nil {
		return nil, err
	}
	if err := checkWritable(rows); err != nil {
		_ = rows.Close() // its own error says no more
		return nil, err
	}
	return rows, nil
}

// prove reads the result of proof, and goes on to that of the next statement.
func checkWritable(rows *sql.Rows) error {
	var readOnly, innodb string
	if !rows.Next() {
		return rowsError(rows)
	}
	if err := rows.Scan(&readOnly, &innodb); err != nil {
		return err
	}
	if !isOff(readOnly) || !isOff(innodb) {
		return errNotPrimary
	}
	if !rows.NextResultSet() {
		return rowsError(rows)
	}
	return nil
}

// rowsError is why there is no row, or no result, where the server must send one.
func rowsError(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.New("the database sent no result")
}

// queryRow is query of a statement that returns one row, which it scans; sql.ErrNoRows if
// there is none.
func queryRow(ctx context.Context, db *sql.DB, into []any, statement string, args ...any) error {
	rows, err := query(ctx, db, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := scan(rows, into...); err != nil {
		return err
	}
	return rows.Close()
}

// scan is rows.Scan. A value that is not of the type that the engine needs is a fault.
func scan(rows *sql.Rows, into ...any) error {
	err := rows.Scan(into...)
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error") {
		return wrongTable(err)
	}
	return err
}

// isOff reports whether a variable of the server is off. MariaDB's read_only has more
// values than one that are not.
func isOff(value string) bool { return value == "" || value == "0" || strings.EqualFold(value, "OFF") }

// mayIgnoreReadOnly returns the privilege by which the user may write to a server that
// is read_only, "" if it has none. Of roles it sees what SHOW GRANTS shows.
func readOnlyBypass(ctx context.Context, db *sql.DB) (privilege string, err error) {
	rows, err := query(ctx, db, "SHOW GRANTS")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return "", err
		}
		granted, _, global := strings.Cut(strings.ToUpper(grant), " ON *.* TO ")
		for one := range strings.SplitSeq(strings.TrimPrefix(granted, "GRANT "), ",") {
			switch one = strings.TrimSpace(one); one {
			case "ALL PRIVILEGES", "SUPER", "READ_ONLY ADMIN", "READ ONLY ADMIN", "CONNECTION_ADMIN":
				if global {
					privilege = one
				}
			}
		}
	}
	return privilege, rows.Err()
}

// mightWriteAnywhere is the warning of a user with such a privilege. It is no more than
// that: without a failover, as on a server of its own, the privilege does no harm.
func readOnlyBypassWarning(user, privilege string) string {
	return fmt.Sprintf("user %q may write to a server that is read_only (%s): after a failover, grants can go on through the old primary; "+
		"give simba-resp a user with SELECT, INSERT, UPDATE on simba_mutex only", user, privilege)
}
