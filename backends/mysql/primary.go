package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// In this file, a server is a database server. Only a primary's rows are current. A replica may lag
// behind. The rows of a demoted primary no longer change, but connections to it stay open, and only
// writes fail there. So before each SELECT, in the same packet, the engine sends writableCheck. The
// server runs these two statements in this order.
//
// If writableCheck succeeds, the server accepted writes at some instant after the request was sent,
// and read the rows after that instant. If the server was demoted in between, the rows are those at
// its demotion, or newer ones from the next primary. In each case the mutex had this state at some
// time between request and answer, which is what an answer promises.
//
// The reverse order would be wrong: a lagging replica could be promoted after it has read its rows.
// A single statement would be wrong too, since the database may read its variables after the rows.
// The SELECT may wait for a row's lock without harm.
//
// The engine cannot detect a primary that was cut off but is not read_only.

// writableCheck reads whether the server accepts writes. On MySQL super_read_only implies
// read_only. Readers of Amazon Aurora have innodb_read_only.
const writableCheck = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only; "

// errNotPrimary is returned when a read reaches a server that refuses writes.
var errNotPrimary = errors.New("the database is read-only: it is not the primary, or no longer")

// query runs a statement that reads. It returns errNotPrimary if the server refuses writes.
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

// rowsError returns the reason for a missing row or result that the server must send.
func rowsError(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.New("the database sent no result")
}

// queryRow is like query, and scans the only row of the result. It returns sql.ErrNoRows if there
// is none.
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

// scan is like rows.Scan, but returns wrongTable for a value of the wrong type.
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

// readOnlyBypass returns a privilege that lets the user write to a read_only server, "" if there is
// none. It does not see the privileges of roles.
func readOnlyBypass(ctx context.Context, db *sql.DB) (privilege string, err error) {
	err = queryRow(ctx, db, []any{&privilege}, `SELECT COALESCE(MAX(privilege_type), '') FROM information_schema.user_privileges
		WHERE grantee = CONCAT('\'', REPLACE(CURRENT_USER(), '@', '\'@\''), '\'')
		AND privilege_type IN ('SUPER', 'READ_ONLY ADMIN', 'READ ONLY ADMIN', 'CONNECTION_ADMIN')`)
	return privilege, err
}
