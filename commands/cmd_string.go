package commands

import "github.com/simba-resp/simba-resp"

// These commands see a lock key as a string. Its value is the owner of the mutex.

var stringCommands = []command{
	{
		name: "delex", arity: -2, flags: write | fast, keys: oneKey(valueWritten), since: "8.4.0", keyed: delex,
		summary: "Release the mutex of a lock key; with IFEQ, only if the key has this value",
		args:    "key [IFEQ ifeq-value]",
	},
	{
		name: "delifeq", arity: 3, flags: write | fast, keys: oneKey(valueRead | valueWritten), since: "9.0.0", keyed: delifeq,
		summary: "Release the mutex of a lock key only if the key has this value, as DELEX with IFEQ",
		args:    "key value",
	},
	{
		name: "get", arity: 2, flags: readonly | fast, keys: oneKey(valueRead), since: "1.0.0", keyed: get,
		summary: "Get the value of a lock key, the owner of its mutex",
		args:    "key",
	},
	{
		name: "getrange", arity: 4, flags: readonly, keys: oneKey(valueRead), since: "2.4.0", keyed: getrange,
		summary: "Get a part of the value of a lock key",
		args:    "key start end",
	},
	{
		name: "getset", arity: 3, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), actor: oneValue,
		since: "1.0.0", keyed: getset,
		summary: "Take the mutex of a lock key from its owner and return the old owner",
		args:    "key value",
	},
	{
		name: "mget", arity: -2, flags: readonly | fast, keys: manyKeys(valueRead), since: "1.0.0", keyed: mget,
		summary: "Get the values of all the given lock keys",
		args:    "key [key ...]",
	},
	{
		name: "mset", arity: -3, flags: write | denyoom, keys: keyPairs, actor: pairValues, since: "1.0.1", keyed: mset,
		summary: "Set the values of all the given lock keys, as SET",
		args:    "key value [key value ...]",
	},
	{
		name: "msetnx", arity: -3, flags: write | denyoom, keys: keyPairs, actor: pairValues, since: "1.0.1", keyed: msetnx,
		summary: "Set the values of all the given lock keys, only if all their mutexes are free",
		args:    "key value [key value ...]",
	},
	{
		name: "psetex", arity: 4, flags: write | denyoom | renewing, keys: oneKey(valueWritten), actor: secondValue,
		since: "2.6.0", keyed: setExpiring(inMillis),
		summary: "Set the value and expiration in milliseconds of a lock key",
		args:    "key milliseconds value",
	},
	{
		name: "set", arity: -3, flags: write | denyoom | renewing, keys: oneKey(valueRead | valueWritten), actor: oneValue,
		since: "1.0.0", keyed: set,
		summary: "Set the value of a lock key: a new owner takes the mutex, or the present one renews its lease",
		args:    "key value [NX | XX | IFEQ ifeq-value] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
	},
	{
		name: "setex", arity: 4, flags: write | denyoom | renewing, keys: oneKey(valueWritten), actor: secondValue,
		since: "2.0.0", keyed: setExpiring(inSeconds),
		summary: "Set the value and expiration of a lock key",
		args:    "key seconds value",
	},
	{
		name: "setnx", arity: 3, flags: write | denyoom | fast, keys: oneKey(valueWritten), actor: oneValue,
		since: "1.0.0", keyed: setnx,
		summary: "Set the value of a lock key only if its mutex is free",
		args:    "key value",
	},
	{
		name: "strlen", arity: 2, flags: readonly | fast, keys: oneKey(existence),
		since: "2.2.0", run: (*client).runOnOwner, keyed: strlen,
		summary: "Get the length of the owner's id, the value behind the key of a mutex",
		args:    "key",
	},
}

// put sets a lock key to value, with the lease d. old is the present lock, if it exists. If d is
// over, put deletes the key. If old is a string with the same value, its tenure goes on. Otherwise a
// new tenure begins.
func (t *keyTx) put(mutex string, old simba.Lock, exists bool, value string, d lease) {
	switch {
	case d.over && exists:
		t.Drop(mutex)
	case d.over: // there is no lock, and a new one would already have expired
	case exists && old.Fields == nil && old.Owner == value:
		t.Change(mutex, d.of(old), !d.kept)
	default:
		t.Take(mutex, d.of(simba.Lock{Owner: value}))
	}
}

func (t *keyTx) writeValue(l simba.Lock) {
	if !l.Exists() {
		t.w.Null()
		return
	}
	t.w.BulkString(l.Owner)
}

func get(t *keyTx, args [][]byte) error {
	l, err := t.str(t.key(args))
	if err != nil {
		return err
	}
	t.writeValue(l)
	return nil
}

func mget(t *keyTx, args [][]byte) error {
	t.w.Array(len(args) - 1)
	for _, key := range args[1:] {
		l, _ := t.str(parseKey(key)) // a key of another type counts as missing
		t.writeValue(l)
	}
	return nil
}

// getrange corrects the ends of the range as Redis does: an end before the first byte is the first
// byte.
func getrange(t *keyTx, args [][]byte) error {
	from, ok := parseInt(args[2])
	to, valid := parseInt(args[3])
	if !ok || !valid {
		return errNotInteger
	}
	l, err := t.str(t.key(args))
	if err != nil {
		return err
	}
	value, n := l.Owner, int64(len(l.Owner))
	if from < 0 && to < from {
		n = 0
	}
	if from < 0 {
		from = max(0, from+n)
	}
	if to < 0 {
		to = max(0, to+n)
	}
	to = min(to, n-1) + 1
	t.w.BulkString(value[min(from, to):to])
	return nil
}

func strlen(t *keyTx, args [][]byte) error {
	l, err := t.str(t.key(args))
	if err != nil {
		return err
	}
	t.w.Int(int64(len(l.Owner)))
	return nil
}

type setOptions struct {
	nx, xx, get bool
	ifeq        []byte // the value that the key must have; nil = any
	keep        bool
	expiry      expiryForm
	at          []byte // the argument of the expiry; nil = no expiry
}

// parseSetOptions reads the options as Redis does: the same option may appear twice, and the last
// one counts.
func parseSetOptions(rest [][]byte) (o setOptions, err error) {
	for i := 0; i < len(rest); i++ {
		word := rest[i]
		form, expires := expiryOption(word)
		switch {
		case equalFold(word, "NX") && !o.xx && o.ifeq == nil:
			o.nx = true
		case equalFold(word, "XX") && !o.nx && o.ifeq == nil:
			o.xx = true
		case equalFold(word, "IFEQ") && !o.nx && !o.xx && o.ifeq == nil && i+1 < len(rest):
			i++
			o.ifeq = rest[i]
		case equalFold(word, "GET"):
			o.get = true
		case equalFold(word, "KEEPTTL") && o.at == nil:
			o.keep = true
		case expires && !o.keep && (o.at == nil || o.expiry == form) && i+1 < len(rest):
			i++
			o.expiry, o.at = form, rest[i]
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

func expiryOption(word []byte) (expiryForm, bool) {
	switch {
	case equalFold(word, "EX"):
		return inSeconds, true
	case equalFold(word, "PX"):
		return inMillis, true
	case equalFold(word, "EXAT"):
		return atSeconds, true
	case equalFold(word, "PXAT"):
		return atMillis, true
	}
	return expiryForm{}, false
}

func set(t *keyTx, args [][]byte) error {
	o, err := parseSetOptions(args[3:])
	if err != nil {
		return err
	}
	d := forever()
	if o.at != nil {
		if d, err = o.expiry.parse(t, args, o.at, 1); err != nil {
			return err
		}
	}
	return t.setOne(args, args[2], d, o)
}

// setOne sets a string unless an option forbids it, and replies as SET does.
func (t *keyTx) setOne(args [][]byte, value []byte, d lease, o setOptions) error {
	old, done, err := t.setIf(t.key(args), args, string(value), d, o)
	switch {
	case err != nil:
		return err
	case o.get:
		t.writeValue(old)
	case done:
		t.w.Simple("OK")
	default:
		t.w.Null()
	}
	return nil
}

// setIf sets a string unless an option forbids it, and reports whether it did. old is the lock that
// the key had before.
func (t *keyTx) setIf(k simba.Key, args [][]byte, value string, d lease, o setOptions) (old simba.Lock, done bool, err error) {
	old, exists := t.lookup(k)
	if (o.get || o.ifeq != nil) && exists && !isString(k, old) {
		return old, false, errWrongType
	}
	done, err = t.maySet(k, old, exists, args, value, o)
	if done && k.Part == simba.KeyLock { // a token already has the value
		if o.keep && exists {
			d = unchanged()
		}
		t.put(k.Mutex, old, exists, value, d)
	}
	return old, done, err
}

// maySet reports whether the options let a command set a string. old and exists are the result of
// lookup. NX also refuses a free mutex that is reserved for another waiter, as ACQUIRE does. A
// contender may write the token that it received.
func (t *keyTx) maySet(k simba.Key, old simba.Lock, exists bool, args [][]byte, value string, o setOptions) (bool, error) {
	switch {
	case o.nx && k.Part == simba.KeyLock && (exists || !t.MayTake(k.Mutex, value)):
		if t.scripted {
			t.Refuse(k.Mutex, value)
		}
		return false, nil
	case o.nx && exists, o.xx && !exists, o.ifeq != nil && (!exists || old.Owner != string(o.ifeq)):
		return false, nil
	case k.Part == simba.KeyToken && exists && old.Owner == value:
		return true, nil
	case k.Part != simba.KeyLock:
		return false, viewError(args, k)
	}
	return true, nil
}

func mset(t *keyTx, args [][]byte) error {
	if _, err := t.setAll(args, setOptions{}); err != nil {
		return err
	}
	t.w.Simple("OK")
	return nil
}

func msetnx(t *keyTx, args [][]byte) error {
	done, err := t.setAll(args, setOptions{nx: true})
	if err != nil {
		return err
	}
	writeFlag(t.w, done)
	return nil
}

// setAll sets all keys, or none. It reports whether it did.
func (t *keyTx) setAll(args [][]byte, o setOptions) (bool, error) {
	if len(args)%2 == 0 {
		return false, replyErrorf("ERR wrong number of arguments for '%s' command", nameOf(args))
	}
	for i := 1; i < len(args); i += 2 {
		k := parseKey(args[i])
		old, exists := t.lookup(k)
		if ok, err := t.maySet(k, old, exists, args, string(args[i+1]), o); !ok {
			return false, err
		}
	}
	for i := 1; i < len(args); i += 2 {
		// A key that occurs twice exists by now, so NX does not apply any more.
		if _, _, err := t.setIf(parseKey(args[i]), args, string(args[i+1]), forever(), setOptions{}); err != nil {
			return false, err
		}
	}
	return true, nil
}

func setnx(t *keyTx, args [][]byte) error {
	_, done, err := t.setIf(t.key(args), args, string(args[2]), forever(), setOptions{nx: true})
	if err != nil {
		return err
	}
	writeFlag(t.w, done)
	return nil
}

func setExpiring(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		d, err := f.parse(t, args, args[2], 1)
		if err != nil {
			return err
		}
		return t.setOne(args, args[3], d, setOptions{})
	}
}

func getset(t *keyTx, args [][]byte) error {
	return t.setOne(args, args[2], forever(), setOptions{get: true})
}

func delex(t *keyTx, args [][]byte) error {
	switch len(args) {
	case 2:
		return del(t, args)
	case 4:
	default:
		return replyErrorf("ERR wrong number of arguments for '%s' command", nameOf(args))
	}
	l, err := t.str(t.key(args))
	switch {
	case err != nil:
		return replyError("ERR Key should be of string type if conditions are specified")
	case !l.Exists() || equalFold(args[2], "IFEQ"):
		return delifeq(t, [][]byte{args[0], args[1], args[3]})
	case equalFold(args[2], "IFNE"), equalFold(args[2], "IFDEQ"), equalFold(args[2], "IFDNE"):
		return errSyntax // not served
	}
	return replyError("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
}

func delifeq(t *keyTx, args [][]byte) error {
	l, err := t.str(t.key(args))
	switch {
	case err != nil:
		return err
	case !l.Exists() || l.Owner != string(args[2]):
		writeFlag(t.w, false)
		return nil
	}
	return del(t, args[:2])
}
