package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Error numbers of the server.
const (
	errDiskFull        = 1021
	errReadOnlyTable   = 1036 // with innodb_read_only, as on an Aurora reader
	errManyConns       = 1040
	errDatabaseDenied  = 1044
	errAccessDenied    = 1045
	errNotReady        = 1047 // a Galera node that has lost its cluster
	errNull            = 1048
	errUnknownDatabase = 1049
	errAmbiguous       = 1052
	errNoColumn        = 1054
	errDuplicateColumn = 1060
	errDuplicate       = 1062
	errSyntax          = 1064
	errTableFull       = 1114
	errHostBlocked     = 1129
	errHostDenied      = 1130
	errTableDenied     = 1142
	errColumnDenied    = 1143
	errNoTable         = 1146
	errNoVariable      = 1193
	errManyUserConns   = 1203
	errLockWait        = 1205
	errDeadlock        = 1213
	errUserLimit       = 1226
	errRightDenied     = 1227
	errOldProtocol     = 1251
	errOutOfRange      = 1264
	errTruncated       = 1265
	errNotUpdatable    = 1288
	errReadOnlyOption  = 1290
	errWrongValue      = 1292
	errNoFunction      = 1305
	errInvalidView     = 1356
	errNoDefault       = 1364
	errWrongField      = 1366
	errDataTooLong     = 1406
	errNoPlugin        = 1524
	errStatementBinlog = 1665
	errValueOutOfRange = 1690
	errNoPassword      = 1698
	errReadOnlyTx      = 1792
	errMustChange      = 1820
	errReadOnlyMode    = 1836
	errExpired         = 1862
	errReadOnlyInnoDB  = 1874
	errNotInEngine     = 1932
	errAccountLocked   = 3118
	errAccountLockedM  = 4151 // errAccountLocked on MariaDB
)

// errorNumber returns the server's error number, or 0 if the server did not answer.
func errorNumber(err error) uint16 {
	var e *mysqldriver.MySQLError
	if errors.As(err, &e) {
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

// isConflict reports whether a statement failed because of another transaction. Such a statement
// has done nothing.
func isConflict(err error) bool {
	n := errorNumber(err)
	return n == errLockWait || n == errDeadlock
}

// isFull reports whether the database had no space for a row, or for a longer owner in it.
func isFull(err error) bool {
	n := errorNumber(err)
	return n == errTableFull || n == errDiskFull
}

// fail returns an error of the driver as the error of a step.
func (s *store) fail(err error) error {
	if err == nil || errors.As(err, new(*simba.NameError)) || errors.As(err, new(proxy.NotDone)) {
		return err
	}
	switch {
	case isConflict(err):
		return proxy.NotDone{Err: err, Locked: true}
	case isFull(err):
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
		return e.driverFault(err)
	case errAccessDenied, errNoPassword:
		return faultf("the database at %s refuses user %q: check user and password in the DSN", e.addr, e.user)
	case errManyConns, errManyUserConns, errUserLimit:
		return faultf("the database at %s refuses new connections (%s): raise max_connections or max_user_connections", e.addr, oneLine(err))
	case errHostBlocked, errHostDenied, errOldProtocol, errNoPlugin, errMustChange, errExpired, errAccountLocked, errAccountLockedM:
		return faultf("the database at %s refuses user %q: %s", e.addr, e.user, oneLine(err))
	case errDatabaseDenied:
		return faultf("user %q has no privilege on database %q at %s: GRANT SELECT, INSERT, UPDATE ON it", e.user, e.database, e.addr)
	case errUnknownDatabase:
		return faultf("there is no database %q at %s: create it, or correct the DSN", e.database, e.addr)
	case errTableDenied, errColumnDenied, errRightDenied:
		return faultf("user %q lacks a privilege on table simba_mutex (%s): GRANT SELECT, INSERT, UPDATE ON it, and CREATE and ALTER for --mysql-migrate", e.user, oneLine(err))
	case errNoTable, errNotInEngine:
		return faultf("database %q has no table simba_mutex: start with --mysql-migrate, which creates it", e.database)
	case errOutOfRange, errValueOutOfRange:
		if strings.Contains(err.Error(), "version") {
			return faultf("column version of table simba_mutex has reached its maximum: change it to BIGINT UNSIGNED")
		}
		return wrongTable(err)
	case errAmbiguous, errNoColumn, errNull, errTruncated, errWrongValue, errWrongField, errDataTooLong, errNoDefault,
		errNotUpdatable, errInvalidView:
		return wrongTable(err)
	case errStatementBinlog:
		return errStatements
	case errSyntax, errNoVariable, errNoFunction:
		return faultf("the server cannot run a statement of the engine (%s): it needs MySQL 5.7, MariaDB 10.3 or later", oneLine(err))
	}
	return nil
}

func wrongTable(err error) error {
	if errorNumber(err) == errNoColumn && strings.Contains(err.Error(), "fencing_token") {
		return errNoToken
	}
	return faultf("table simba_mutex is not Simba's (%s): rename it, and start with --mysql-migrate", oneLine(err))
}

// errNoToken is the fault of a table of Simba up to 3.2.
var errNoToken = faultf("table simba_mutex has no column fencing_token: start with --mysql-migrate, or run " + addToken)

// driverFault is like fault, for an error without a number.
func (e endpoint) driverFault(err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return faultf("the certificate of the database at %s is not trusted: %s", e.addr, oneLine(err))
	}
	for _, own := range []error{
		mysqldriver.ErrNoTLS, mysqldriver.ErrCleartextPassword, mysqldriver.ErrNativePassword,
		mysqldriver.ErrOldPassword, mysqldriver.ErrOldProtocol, mysqldriver.ErrUnknownPlugin,
	} {
		if errors.Is(err, own) {
			return faultf("the database at %s does not accept the DSN: %s", e.addr, oneLine(err))
		}
	}
	return nil
}

// explain is like fault, for Open. It returns one line for every error.
func (e endpoint) explain(err error) error {
	if f := e.fault(err); f != nil {
		return f
	}
	refused := proxy.Fault{}
	switch {
	case errors.As(err, &refused):
		return refused
	case isReadOnly(err):
		return errors.New("the server is read-only: name the primary in the DSN, or set read_only to OFF")
	case errorNumber(err) == 0:
		return fmt.Errorf("cannot reach the database at %s: %s", e.addr, oneLine(err))
	}
	return errors.New(oneLine(err))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
