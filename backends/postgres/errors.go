package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// name is the engine's name in errors.
const name = "postgres"

// SQLSTATE codes, see appendix A of PostgreSQL's manual.
const (
	codeReadOnly      = "25006" // read_only_sql_transaction
	codeBadAuth       = "28000"
	codeBadPassword   = "28P01"
	codeNoDatabase    = "3D000"
	codeNoSchema      = "3F000"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeDenied        = "42501"
	codeNoTable       = "42P01"
	codeNoColumn      = "42703"
	codeWrongObject   = "42809"
	codeDiskFull      = "53100"
	codeNoMemory      = "53200"
	codeManyConns     = "53300"
	codeNotReady      = "55000" // object_not_in_prerequisite_state
	codeLockTimeout   = "55P03"
	codeCanceled      = "57014"
	codeMaxTokens     = "2200H" // sequence_generator_limit_exceeded
)

func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// fail returns an error of the driver as the error of a step that was sent at the given time. If
// PostgreSQL has answered with an error, it has rolled the transaction back.
func (s *store) fail(sent time.Time, err error) error {
	if err == nil || errors.As(err, new(proxy.NotDone)) {
		return err
	}
	switch codeOf(err) {
	case codeLockTimeout, codeSerialization, codeDeadlock, codeCanceled:
		return proxy.NotDone{Err: err, Locked: true}
	case codeDiskFull, codeNoMemory:
		return proxy.NotDone{Err: err}
	}
	if f := fault(err); f != nil {
		return &simba.MisconfiguredError{Engine: name, Err: f}
	}
	if !errors.Is(err, context.Canceled) {
		s.reset(sent)
	}
	return err
}

// reset closes the connections of the pool after a failed step: others may be broken too, or lead to
// the same node. It keeps those from after the step was sent. Otherwise a slow database, where many
// steps fail, would have to accept new connections all the time, and become slower.
func (s *store) reset(sent time.Time) {
	s.resetting.Lock()
	defer s.resetting.Unlock()
	if sent.After(s.resetAt) {
		s.pool.Reset()
		s.resetAt = time.Now()
	}
}

// fault returns what an operator has to change, or nil for an error that may pass by itself.
func fault(err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("the certificate of the database is not trusted: %s", proxy.OneLine(err))
	}
	switch code := codeOf(err); code {
	case codeManyConns:
		return fmt.Errorf("the database refuses new connections (%s): raise max_connections", proxy.OneLine(err))
	case codeBadAuth, codeBadPassword, codeNoDatabase:
		return fmt.Errorf("the database refuses the connection: %s", proxy.OneLine(err))
	case codeDenied:
		return fmt.Errorf("the role lacks a privilege (%s): %s", proxy.OneLine(err), grants)
	case codeNoTable, codeNoSchema:
		return fmt.Errorf("the database lacks the table simba_mutex or the sequence simba_token (%s): %s", proxy.OneLine(err), migrateHint)
	case codeNoColumn, codeWrongObject:
		return fmt.Errorf("the table simba_mutex is not simba-resp's (%s): rename it, and %s", proxy.OneLine(err), migrateHint)
	case codeMaxTokens:
		return errors.New("the sequence simba_token has reached its maximum: ALTER SEQUENCE simba_token NO MAXVALUE")
	}
	return nil
}

const (
	grants      = "GRANT SELECT, INSERT, UPDATE, DELETE ON simba_mutex and USAGE ON SEQUENCE simba_token to it"
	migrateHint = "start with --postgres-migrate, or run the statements of the guide"
)

// explain returns an error of Open in one line.
func explain(err error) error {
	if f := fault(err); f != nil {
		return f
	}
	switch {
	case errors.As(err, new(proxy.Fault)):
		return err
	case errors.Is(err, errStandby):
		return fmt.Errorf("%w: name the primary in the URL, or all hosts with target_session_attrs=read-write", errStandby)
	case codeOf(err) != "":
		return errors.New(proxy.OneLine(err))
	}
	return fmt.Errorf("cannot reach the database: %s", proxy.OneLine(err))
}
