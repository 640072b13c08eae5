package commands

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// parseInt reads a decimal integer as strictly as Redis does: an optional minus sign, and digits
// without a leading zero.
func parseInt(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	var canonical [20]byte
	return n, err == nil && bytes.Equal(strconv.AppendInt(canonical[:0], n, 10), b)
}

// parseUint is parseInt without a sign.
func parseUint(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	var canonical [20]byte
	return n, err == nil && bytes.Equal(strconv.AppendUint(canonical[:0], n, 10), b)
}

// parseMillis reads a time in milliseconds. name is the argument's name in errors, as in the
// functions below.
func parseMillis(name string, b []byte, lo, hi time.Duration) (time.Duration, error) {
	n, err := parseRange(name, b, lo.Milliseconds(), hi.Milliseconds(), " milliseconds")
	return time.Duration(n) * time.Millisecond, err
}

// parseRange reads an integer. unit follows the range in errors.
func parseRange(name string, b []byte, lo, hi int64, unit string) (int64, error) {
	n, ok := parseInt(b)
	if !ok || n < lo || n > hi {
		return 0, replyErrorf("ERR %s is not an integer or out of range: %d to %d%s", name, lo, hi, unit)
	}
	return n, nil
}

func checkLength(name string, b []byte, limit int) error {
	if len(b) > limit {
		return replyErrorf("ERR %s has %d bytes, at most %d are allowed", name, len(b), limit)
	}
	return nil
}

// maxGlobLen is the longest glob, in bytes. The time to match a glob is proportional to its length.
const maxGlobLen = 1024

func parseGlob(name string, b []byte) (string, error) { return parseText(name, b, maxGlobLen) }

// parseText copies only a text that is short enough.
func parseText(name string, b []byte, limit int) (string, error) {
	if err := checkLength(name, b, limit); err != nil {
		return "", err
	}
	return string(b), nil
}

// parseToken reads a fencing token that names a tenure. It refuses 0. To the backend, 0 means "any
// token", so a client that sends 0 for a missing token would bypass the check.
func parseToken(name string, b []byte) (uint64, error) {
	n, err := parseRange(name, b, 1, math.MaxInt64, "")
	return uint64(n), err
}

// equalFold reports whether b equals word, an ASCII text, without regard to the case of ASCII letters.
func equalFold(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(string(b), word)
}

// shorten cuts a client's text to 128 bytes, for an error.
func shorten(b []byte) []byte { return b[:min(len(b), 128)] }

// options iterates over the options after a command's fixed arguments. Options may come in any
// order and in any case, each at most once:
//
//	for o := (options{rest: args[3:]}); o.next("TRANSITION", "TOKEN"); {
//		switch o.name {
//		case "TRANSITION":
//			transition = o.millis(0, simba.MaxTransition)
//		case "TOKEN":
//			token = o.token()
//		}
//	}
//
// The first error ends the iteration and stays in err.
type options struct {
	rest [][]byte
	name string    // the present option
	seen [5]string // the names of the options so far; no command has more than 5
	n    int       // how many elements of seen are used
	err  error
}

// next goes to the next option, which must have one of the names, in upper case. It returns false if
// there is none, or after an error.
func (o *options) next(names ...string) bool {
	if o.err != nil || len(o.rest) == 0 {
		return false
	}
	word := o.rest[0]
	o.rest = o.rest[1:]
	i := slices.IndexFunc(names, func(name string) bool { return equalFold(word, name) })
	switch {
	case i < 0:
		o.err = replyErrorf("ERR syntax error: unknown option '%s'", shorten(word))
		return false
	case o.has(names[i]):
		o.err = replyErrorf("ERR syntax error: option '%s' given twice", names[i])
		return false
	}
	o.name = names[i]
	o.seen[o.n] = o.name
	o.n++
	return true
}

func (o *options) has(name string) bool { return slices.Contains(o.seen[:o.n], name) }

func (o *options) value() []byte {
	if o.err == nil && len(o.rest) == 0 {
		o.err = replyErrorf("ERR syntax error: option '%s' needs a value", o.name)
	}
	if o.err != nil {
		return nil
	}
	v := o.rest[0]
	o.rest = o.rest[1:]
	return v
}

func (o *options) millis(lo, hi time.Duration) time.Duration {
	return optionValue(o, func(v []byte) (time.Duration, error) { return parseMillis(o.name, v, lo, hi) })
}

func (o *options) integer(lo, hi int64) int64 {
	return optionValue(o, func(v []byte) (int64, error) { return parseRange(o.name, v, lo, hi, "") })
}

func (o *options) token() uint64 {
	return optionValue(o, func(v []byte) (uint64, error) { return parseToken(o.name, v) })
}

func (o *options) text(limit int) string {
	return optionValue(o, func(v []byte) (string, error) { return parseText(o.name, v, limit) })
}

func optionValue[T any](o *options, parse func([]byte) (T, error)) (v T) {
	raw := o.value()
	if o.err == nil {
		v, o.err = parse(raw)
	}
	return v
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func nameOf(args [][]byte) string { return strings.ToLower(string(args[0])) }

// parseKey reads a key. A mutex has a lock key and the keys of three views: its queue, its present
// token, and the counter of its tokens.
func parseKey(key []byte) simba.Key { return simba.ParseKey(string(key)) }
