package commands

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// A replyError is an error in the words that go on the wire, its code first.
type replyError string

func (e replyError) Error() string { return string(e) }

// A scriptedError is what a script failed with. Its words, the code too, may be the script's own.
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

// wireText turns an error into the text of an error reply, code first. What an engine failed at may
// be tried again: every request of a contender is idempotent by its id. What its store refuses
// until an operator mends it is no TRYAGAIN: clients would ask for ever, and nobody would look. The
// one command that must not be repeated blindly is BREAK: it names no tenure, so the second may end
// that of the next owner.
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

// fail replies with an error.
func (c *client) fail(err error) {
	text := wireText(err)
	c.failed = true
	c.lost().met(err)
	c.x.storeFaults.met(err)
	c.x.errors.add(err)
	c.w.Error(text)
}

// What is kept of the codes that scripts make up: what is beyond it counts as one, as in Redis.
const (
	maxErrorCodes   = 128
	maxErrorCode    = 64 // bytes
	otherErrorCodes = "ERRORSTATS_OVERFLOW"
)

// errorTally counts error replies by their code. Errors are not the hot path, so
// a mutex will do.
type errorTally struct {
	mu    sync.Mutex
	total uint64
	codes map[string]uint64 // few: codes are our own words, and at most maxErrorCodes with those of scripts
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
	t.codes[strings.Clone(code)]++ // not a part of a text that may be long
	t.total++
}

func (t *errorTally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.codes, t.total = nil, 0
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
