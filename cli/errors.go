package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	exitNo          = 1  // the answer is no, for example because the mutex has no owner
	exitUsage       = 2  // invalid arguments or settings
	exitUnavailable = 69 // the server cannot be reached or replies with an error; EX_UNAVAILABLE
)

// ExitError is an error with the exit code of the process.
type ExitError struct {
	Code int
	Err  error // nil = nothing to print
	// Interrupted reports that SIGINT has ended the work of the process.
	Interrupted bool
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns Code.
func (e *ExitError) ExitCode() int { return e.Code }

// Usagef returns an error in the arguments or settings.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: exitUsage, Err: fmt.Errorf(format, args...)}
}

// fileError returns an error of the file system with its path escaped.
func fileError(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("%s %s: %w", path.Op, Printable(path.Path), path.Err)
	}
	return err
}

// Explain converts an error of a client that uses the options o. The text of the new error is one
// line that says what to check. The new error has a method ExitCode, which returns 69. Explain
// returns nil for nil.
func Explain(o *redis.Options, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: exitUnavailable, Err: fmt.Errorf("%s: %w", Printable(o.Addr), explained{explain(o, err), err})}
}

// RefusesLogin reports whether err says that the server refuses the user, its password or the
// client certificate, or that the server's certificate is not valid. A retry is useless until
// somebody changes a file or the server.
func RefusesLogin(err error) bool {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(reply.Error(), " ")
		return code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM"
	}
	return alertOf(err) != nil || errors.As(err, new(*tls.CertificateVerificationError))
}

// alertOf returns the alert of TLS that err is, or nil.
func alertOf(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// explained is an error with a text of its own.
type explained struct {
	text string
	err  error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.err }

// explain returns the text of an error. No text has the password: neither the server nor go-redis
// repeats it. o may be nil if err is no error reply.
func explain(o *redis.Options, err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return explainReply(o, Printable(reply.Error()))
	}
	var netErr net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, new(*net.DNSError)):
		return "unknown host; check the URL"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the server does not speak TLS on this port; use redis:// or its TLS port"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "an unknown authority signed the server's certificate; check --cacert"
	case errors.As(err, new(x509.HostnameError)):
		return "the server's certificate is for another host; use a host name that is in the certificate"
	case alertOf(err) != nil:
		return "the server refuses the TLS connection (" + Printable(alertOf(err).Error()) + "); check --cert and --key"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused; check that the server runs, and the URL"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such socket; check that the server runs, and the URL"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied; check the rights of the socket"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout():
		return "no reply in time; check the URL, the network and the server's log"
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		if why := refusal(o); why != "" {
			return why
		}
		return "the server closed the connection; check its log, and whether it needs rediss://"
	}
	return Printable(err.Error())
}

// refusal asks a server that closes connections why, and returns its error reply, "" = none. A member
// of a cluster without a leader replies to the first request, with which go-redis opens a connection.
func refusal(o *redis.Options) string {
	if o == nil {
		return ""
	}
	conn, err := o.Dialer(context.Background(), o.Network, o.Addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	_, _ = io.WriteString(conn, "PING\r\n")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if !strings.HasPrefix(line, "-TRYAGAIN ") {
		return ""
	}
	return Printable(strings.TrimSpace(line[1:]))
}

// explainReply returns the text of an error reply.
func explainReply(o *redis.Options, reply string) string {
	code, _, _ := strings.Cut(reply, " ")
	switch {
	case code == "NOAUTH":
		return "the server asks for a login; set --user and --password-file or SIMBA_PASSWORD"
	case code == "WRONGPASS":
		return "the server refuses the password of user " + Printable(cmp.Or(o.Username, "default")) + "; check both, and that the user is on"
	case strings.HasPrefix(reply, "ERR unknown command"):
		return "the server does not know the command; check that the URL is that of a simba-resp server"
	}
	return reply
}
