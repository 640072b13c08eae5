package commands

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// A replyError is the text of an error reply. It begins with a code, such as ERR.
type replyError string

func (e replyError) Error() string { return string(e) }

// A scriptedError is the text of an error reply, with its code, that a script has chosen.
type scriptedError string

func (e scriptedError) Error() string { return string(e) }

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
	var reply replyError
	var scripted scriptedError
	var name *simba.NameError
	var refusal *denial
	var misconfigured *simba.MisconfiguredError
	switch {
	case errors.As(err, &reply):
		return string(reply)
	case errors.As(err, &refusal):
		return refusal.words
	case errors.As(err, &scripted):
		return string(scripted)
	case errors.Is(err, simba.ErrOutOfMemory):
		return "OOM command not allowed when used memory > 'maxmemory'."
	case errors.As(err, &name), errors.As(err, &misconfigured), errors.Is(err, simba.ErrNotServed), errors.Is(err, simba.ErrTooLarge):
		return "ERR " + err.Error()
	default:
		return "TRYAGAIN " + err.Error()
	}
}

// fail replies with an error, and counts it.
func (c *client) fail(err error) {
	text := wireText(err)
	c.conn.ReplyAfter(0) // the request may have caused notices before it failed
	c.lost().met(err)
	c.x.storeFaults.met(err)
	c.x.errors.add(err)
	c.w.Error(text)
}

// The limits for codes that scripts choose. Codes beyond the limits are counted together, as in
// Redis.
const (
	maxErrorCodes   = 128
	maxErrorCode    = 64 // bytes
	otherErrorCodes = "ERRORSTATS_OVERFLOW"
)

type errorTally struct {
	mu    sync.Mutex
	total uint64
	codes map[string]uint64 // counts by code; scripts add codes until it has maxErrorCodes
}

func (t *errorTally) add(err error) {
	code, _, _ := strings.Cut(wireText(err), " ")
	scripted := errors.As(err, new(scriptedError))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.codes == nil {
		t.codes = make(map[string]uint64)
	}
	_, known := t.codes[code]
	if scripted && !known && (len(t.codes) >= maxErrorCodes || len(code) > maxErrorCode) {
		code = otherErrorCodes
	}
	t.codes[strings.Clone(code)]++ // the code shares the memory of a text that may be long
	t.total++
}

func (t *errorTally) sum() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

func (t *errorTally) byCode() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.codes)
}
