package commands

import (
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/script"
)

// A replyError is the text of an error reply. It begins with a code, such as ERR.
type replyError string

func (e replyError) Error() string     { return string(e) }
func (e replyError) replyText() string { return string(e) }

func replyErrorf(format string, args ...any) error {
	return replyError(fmt.Sprintf(format, args...))
}

// Errors in Redis' own words that more than one command uses.
const (
	errSyntax     replyError = "ERR syntax error"
	errNotInteger replyError = "ERR value is not an integer or out of range"
	errNoAuth     replyError = "NOAUTH Authentication required."
	errNoMulti    replyError = "ERR Command not allowed inside a transaction"
	errWrongPass  replyError = "WRONGPASS invalid username-password pair or user is disabled."
)

// wireText turns an error into the text of an error reply. The text begins with a code.
//
// After TRYAGAIN a client may repeat a request. All requests of contenders are idempotent. BREAK is
// not: it names no tenure, so a second BREAK may end the tenure of the next owner. A refusal that
// lasts until an operator acts does not get TRYAGAIN, because clients would retry for ever.
func wireText(err error) string {
	var reply interface{ replyText() string }
	var failure script.Error
	var name *simba.NameError
	var misconfigured *simba.MisconfiguredError
	switch {
	case errors.As(err, &reply):
		return reply.replyText()
	case errors.As(err, &failure):
		return failure.Error()
	case errors.Is(err, simba.ErrOutOfMemory):
		return "OOM command not allowed when used memory > 'maxmemory'."
	case errors.As(err, &name), errors.As(err, &misconfigured), errors.Is(err, simba.ErrNotServed), errors.Is(err, simba.ErrTooLarge):
		return "ERR " + err.Error()
	default:
		return "TRYAGAIN " + err.Error()
	}
}
