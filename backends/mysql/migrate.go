package mysql

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Schema creates the table, for --mysql-migrate. The engine accepts the table of Simba's own
// init-simba-mysql.sql as well.
//
//go:embed init-simba-mysql.sql
var Schema string

// addToken adds fencing_token to the table of Simba up to 3.2. 0 means that no tenure has had a
// token. The default is needed, since these contenders insert rows without the column.
const addToken = "ALTER TABLE simba_mutex ADD COLUMN fencing_token BIGINT UNSIGNED NOT NULL DEFAULT 0"

// Start implements proxy.Store. With Options.Migrate it creates the table if it is missing, and adds a
// missing fencing_token.
//
// The time limit does not apply to adding the column, since the database may copy the table for it.
// Other clients' statements wait behind it, so it waits only briefly for transactions that use the
// table: see tableWait.
func (s *store) Start(ctx context.Context, h proxy.Hooks) error {
	s.hooks = h
	if !s.options.Migrate {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	if _, err := s.db.ExecContext(limited, Schema); err != nil {
		return fmt.Errorf("create the table simba_mutex: %w", err)
	}
	var columns int
	err := queryRow(limited, s.db, []any{&columns}, `SELECT COUNT(*) FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = 'simba_mutex' AND column_name = 'fencing_token'`)
	if err != nil || columns > 0 {
		return err
	}
	s.options.Logger.Info("adding the column fencing_token to the table simba_mutex")
	_, err = s.db.ExecContext(ctx, addToken)
	switch errorNumber(err) {
	case errDuplicateColumn: // another server has just added it
		return nil
	case errLockWait, errDeadlock:
		return fmt.Errorf("add the column fencing_token: a transaction uses the table simba_mutex; start again when it has ended: %w", err)
	}
	return err
}
