package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Only a primary's rows are current. A replica may lag behind. The rows of a demoted primary no
// longer change, but connections to it stay open. Only a write would notice that. So the engine
// sends each reading statement in one packet behind another statement. That one reads whether the
// server takes writes. The server runs both in this order, on one connection.
//
// So the server took writes at some instant after the request was sent, and the rows are read after
// that instant. If the server is demoted in between, the rows are as they were at its demotion, or
// newer ones from the next primary. Both are states of the mutex between sending and answer, which
// is what an answer promises.
//
// The reverse order would be wrong: a lagging replica could be promoted after it has read its rows.
// A single statement would be wrong too, since the database may read its variables after the rows.
// A wait for a row's lock in between changes nothing.
//
// The engine cannot detect a primary that was cut off but is not read_only.

// writableCheck reads whether the server takes writes. On MySQL super_read_only implies read_only.
// Readers of Amazon Aurora have innodb_read_only.
const writableCheck = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only; "

// errNotPrimary is returned when a read reaches a server that takes no writes.
var errNotPrimary = errors.New("the database is read-only: it is not the primary, or no longer")

// query runs a statement that reads. It returns errNotPrimary if the server takes no writes.
func query(ctx context.Context, db *sql.DB, statement string, args ...any) (*sql.Rows, error) {
	rows, err := db.QueryContext(ctx, writableCheck+statement, args...)
	if err != nil {
		return nil, err
	}
	if err := checkWritable(rows); err != nil {
		_ = rows.Close() // err says more than the error of Close
		return nil, err
	}
	return rows, nil
}

// checkWritable reads the result of writableCheck and moves on to the next statement's result.
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

// rowsError returns why there is no row, or no result, where the server must send one.
func rowsError(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.New("the database sent no result")
}

// queryRow is query for a statement that returns one row, which it scans. It returns sql.ErrNoRows
// if there is none.
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

// scan is rows.Scan. A value of the wrong type is a fault of the table.
func scan(rows *sql.Rows, into ...any) error {
	err := rows.Scan(into...)
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error") {
		return wrongTable(err)
	}
	return err
}

// isOff reports whether a variable of the server is off. MariaDB's read_only has several other
// values.
func isOff(value string) bool { return value == "" || value == "0" || strings.EqualFold(value, "OFF") }

// readOnlyBypass returns the privilege that lets the user write to a read_only server, "" if there
// is none. It sees the privileges of roles only if SHOW GRANTS shows them.
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

// readOnlyBypassWarning returns the warning about such a privilege. Without a failover the
// privilege does no harm.
func readOnlyBypassWarning(user, privilege string) string {
	return fmt.Sprintf("user %q may write to a server that is read_only (%s): after a failover, the old primary can still grant; "+
		"give simba-resp a user with SELECT, INSERT, UPDATE on simba_mutex only", user, privilege)
}
