package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"fmt"
)

// Schema creates the table, for --mysql-migrate. The engine accepts the table of Simba's own
// init-simba-mysql.sql as well.
//
//go:embed init-simba-mysql.sql
var Schema string

// addToken adds fencing_token and sets it in each row, in one statement. So no contender can begin
// a tenure in between with a token that an earlier tenure had.
const (
	addToken = "ALTER TABLE simba_mutex ADD COLUMN fencing_token BIGINT UNSIGNED NOT NULL DEFAULT (" + legacyToken + ")" +
		" COMMENT 'the fencing token of the last tenure'"
	// defaultToken sets the column's default to 0, as in a new table.
	defaultToken = "ALTER TABLE simba_mutex ALTER COLUMN fencing_token SET DEFAULT 0"
)

// migrate creates the table if it is missing, and adds a missing fencing_token.
//
// The time limit does not apply to adding the column, since the database copies the table for it.
func migrate(ctx context.Context, db *sql.DB, o Options) error {
	var columns int
	err := within(ctx, o.Timeout, func(ctx context.Context) error {
		if _, err := db.ExecContext(ctx, Schema); err != nil {
			return fmt.Errorf("create the table simba_mutex: %w", err)
		}
		return queryRow(ctx, db, []any{&columns}, `SELECT COUNT(*) FROM information_schema.columns
			WHERE table_schema = DATABASE() AND table_name = 'simba_mutex' AND column_name = 'fencing_token'`)
	})
	if err != nil || columns > 0 {
		return err
	}
	o.Logger.Info("adding the column fencing_token to the table simba_mutex")
	switch err := addColumn(ctx, db); {
	case errorNumber(err) == errDuplicateColumn: // another server has just added it
	case errorNumber(err) == errSyntax:
		o.Logger.Warn("the server cannot add the column fencing_token in one statement: tokens remain the rows' versions",
			"needs", "MySQL 8.0.13 or MariaDB 10.3", "err", err)
	case isConflict(err):
		return fmt.Errorf("add the column fencing_token: a transaction uses the table simba_mutex; start again when it has ended: %w", err)
	default:
		return err
	}
	return nil
}

// addColumn adds fencing_token. Other clients' statements wait behind it, so its connection waits
// only briefly for transactions that use the table.
func addColumn(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() {
		// ErrBadConn closes the connection, so that no other request gets its settings.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}()
	for _, statement := range []string{"SET SESSION lock_wait_timeout = 2", addToken, defaultToken} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
