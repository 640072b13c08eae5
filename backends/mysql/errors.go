package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Error numbers of the server that the engine handles. Those that only an operator can resolve are
// in endpoint.fault.
const (
	errDiskFull        = 1021
	errReadOnlyTable   = 1036 // with innodb_read_only, as on an Aurora reader
	errNotReady        = 1047 // a Galera node that has lost its cluster
	errNoColumn        = 1054
	errDuplicateColumn = 1060
	errDuplicate       = 1062
	errTableFull       = 1114
	errLockWait        = 1205
	errDeadlock        = 1213
	errReadOnlyOption  = 1290
	errReadOnlyTx      = 1792
	errReadOnlyMode    = 1836
	errReadOnlyInnoDB  = 1874
)

// errorNumber returns the server's error number, or 0 if the server did not answer.
func errorNumber(err error) uint16 {
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// isReadOnly reports whether the server refuses writes, for example because it is not the primary.
func isReadOnly(err error) bool {
	switch errorNumber(err) {
	case errReadOnlyOption, errReadOnlyTx, errReadOnlyMode, errReadOnlyTable, errReadOnlyInnoDB, errNotReady:
		return true
	}
	return errors.Is(err, errNotPrimary)
}

// fail returns an error of the driver as the error of a step.
func (s *store) fail(err error) error {
	if err == nil || errors.As(err, new(*simba.NameError)) || errors.As(err, new(proxy.NotDone)) {
		return err
	}
	switch errorNumber(err) {
	case errLockWait, errDeadlock: // another transaction was in the way
		return proxy.NotDone{Err: err, Locked: true}
	case errTableFull, errDiskFull: // no space for a row, or for a longer owner in it
		return proxy.NotDone{Err: fmt.Errorf("the database has no space for a new mutex or owner: %w", err)}
	}
	if f := s.endpoint.fault(err); f != nil {
		return &simba.MisconfiguredError{Engine: name, Err: f}
	}
	if isReadOnly(err) || errorNumber(err) == 0 && !errors.Is(err, context.Canceled) {
		// Other idle connections may be broken too, or lead to a demoted primary. Replace all of
		// them, not one for each failed request.
		s.reconnect()
	}
	return err
}

// reconnect closes the idle connections of the pool. Only one call runs at a time. If calls
// overlapped, database/sql could close the wrong connection, and lose a slot of the pool for ever.
func (s *store) reconnect() {
	s.reconnecting.Lock()
	defer s.reconnecting.Unlock()
	s.db.SetMaxIdleConns(0)
	s.db.SetMaxIdleConns(maxConns)
}

// fault is an error that only an operator can resolve: the database answers, but the engine cannot
// use it.
type fault string

func (f fault) Error() string { return string(f) }

const errStatements = fault("the server's binlog_format is STATEMENT: set it to ROW or MIXED")

func faultf(format string, args ...any) error { return fault(fmt.Sprintf(format, args...)) }

type endpoint struct{ user, addr, database string }

// fault returns one line that says what an operator has to change. It returns nil for an error that
// may pass by itself.
func (e endpoint) fault(err error) error {
	if own := fault(""); errors.As(err, &own) {
		return own
	}
	switch errorNumber(err) {
	case 0:
		if errors.As(err, new(*tls.CertificateVerificationError)) {
			return faultf("the certificate of the database at %s is not trusted: %s", e.addr, proxy.OneLine(err))
		}
		if slices.ContainsFunc(driverRefusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
			return faultf("the database at %s does not accept the DSN: %s", e.addr, proxy.OneLine(err))
		}
	case 1040, 1203, 1226: // too many connections: of the server, of the user
		return faultf("the database at %s refuses new connections (%s): raise max_connections or max_user_connections", e.addr, proxy.OneLine(err))
	case 1045, 1698, 1129, 1130, 1251, 1524, 1820, 1862, 3118, 4151: // wrong password, blocked host, unknown plugin, locked account
		return faultf("the database at %s refuses user %q (%s): check user and password in the DSN", e.addr, e.user, proxy.OneLine(err))
	case 1044: // no right to the database
		return faultf("user %q has no privilege on database %q at %s: GRANT SELECT, INSERT, UPDATE ON it", e.user, e.database, e.addr)
	case 1049: // unknown database
		return faultf("there is no database %q at %s: create it, or correct the DSN", e.database, e.addr)
	case 1142, 1143, 1227: // no right to the table, to a column
		return faultf("user %q lacks a privilege on table simba_mutex (%s): GRANT SELECT, INSERT, UPDATE ON it, and CREATE and ALTER for --mysql-migrate", e.user, proxy.OneLine(err))
	case 1146, 1932: // no such table
		return faultf("database %q has no table simba_mutex: start with --mysql-migrate, which creates it", e.database)
	case 1264, 1690: // out of range
		if strings.Contains(err.Error(), "version") {
			return faultf("column version of table simba_mutex has reached its maximum: change it to BIGINT UNSIGNED")
		}
		return wrongTable(err)
	case errNoColumn, 1048, 1052, 1265, 1288, 1292, 1356, 1364, 1366, 1406: // a column or a view that does not fit
		return wrongTable(err)
	case 1665: // the statement needs another binlog_format
		return errStatements
	case 1064, 1193, 1305: // unknown syntax, variable, function
		return faultf("the server cannot run a statement of the engine (%s): it needs MySQL 5.7, MariaDB 10.3 or later", proxy.OneLine(err))
	}
	return nil
}

// driverRefusals are errors of the driver, which does not log in.
var driverRefusals = []error{
	mysqldriver.ErrNoTLS, mysqldriver.ErrCleartextPassword, mysqldriver.ErrNativePassword,
	mysqldriver.ErrOldPassword, mysqldriver.ErrOldProtocol, mysqldriver.ErrUnknownPlugin,
}

func wrongTable(err error) error {
	if errorNumber(err) == errNoColumn && strings.Contains(err.Error(), "fencing_token") {
		return errNoToken
	}
	return faultf("table simba_mutex is not Simba's (%s): rename it, and start with --mysql-migrate", proxy.OneLine(err))
}

// errNoToken is the fault of a table of Simba up to 3.2.
var errNoToken = faultf("table simba_mutex has no column fencing_token: start with --mysql-migrate, or run " + addToken)

// explain is like fault, for Open. It returns one line for every error.
func (e endpoint) explain(err error) error {
	if f := e.fault(err); f != nil {
		return f
	}
	switch {
	case errors.As(err, new(proxy.Fault)):
		return err
	case isReadOnly(err):
		return errors.New("the server is read-only: name the primary in the DSN, or set read_only to OFF")
	case errorNumber(err) == 0:
		return fmt.Errorf("cannot reach the database at %s: %s", e.addr, proxy.OneLine(err))
	}
	return errors.New(proxy.OneLine(err))
}
