package commands

import "github.com/simba-resp/simba-resp"

// Strings: a lock key's value is the owner of its mutex.

const errWrongType replyError = "WRONGTYPE Operation against a key holding the wrong kind of value"

// lookup returns the lock behind a key and whether the key exists. The key of a queue has no
// lock; a token looks like one.
func (t *keyTx) lookup(k simba.Key) (l simba.Lock, exists bool) {
	switch k.Part {
	case simba.KeyQueue:
		return l, len(t.Queue(k.Mutex)) > 0
	case simba.KeyLock:
		l = t.Lock(k.Mutex)
	default:
		l = t.view(k)
	}
	return l, l.Exists()
}

// str returns the lock behind a string key, the zero Lock for a key that does not exist.
func (t *keyTx) str(k simba.Key) (simba.Lock, error) {
	l, exists := t.lookup(k)
	if exists && (k.Part == simba.KeyQueue || l.Fields != nil) {
		return simba.Lock{}, errWrongType
	}
	return l, nil
}

// put makes a mutex whose lock is old a string. The owner that it has keeps its tenure and gets
// a new lease; any other value is a new tenure.
func (t *keyTx) put(mutex string, old simba.Lock, value string, d lease) {
	switch {
	case d.over && old.Exists():
		t.Drop(mutex)
	case d.over: // it would live no moment
	case old.Exists() && old.Fields == nil && old.Owner == value:
		t.Change(mutex, d.of(old), !d.kept)
	default:
		t.Take(mutex, d.of(simba.Lock{Owner: value}))
	}
}

// writeValue replies with the value of a string key.
func (t *keyTx) writeValue(l simba.Lock) {
	if !l.Exists() {
		t.w.Null()
		return
	}
	t.w.BulkString(l.Owner)
}

func get(t *keyTx, args [][]byte) error {
	l, err := t.str(parseKey(args[1]))
	if err != nil {
		return err
	}
	t.writeValue(l)
	return nil
}

func mget(t *keyTx, args [][]byte) error {
	t.w.Array(len(args) - 1)
	for _, key := range args[1:] {
		l, _ := t.str(parseKey(key)) // what is no string has no value here
		t.writeValue(l)
	}
	return nil
}

func strlen(t *keyTx, args [][]byte) error {
	l, err := t.str(parseKey(args[1]))
	if err != nil {
		return err
	}
	t.w.Int(int64(len(l.Owner)))
	return nil
}

// setOptions are the options of SET and GETEX.
type setOptions struct {
	nx, xx, get   bool
	keep, persist bool
	expiry        expiryForm
	at            []byte // the expiry's argument; nil = none is given
}

// parseSetOptions reads them as Redis does: the same one may come twice, and the last counts.
func parseSetOptions(rest [][]byte, getex bool) (o setOptions, err error) {
	for i := 0; i < len(rest); i++ {
		word, set := rest[i], !getex
		form, expires := expiryOption(word)
		switch {
		case set && equalFold(word, "NX") && !o.xx:
			o.nx = true
		case set && equalFold(word, "XX") && !o.nx:
			o.xx = true
		case set && equalFold(word, "GET"):
			o.get = true
		case set && equalFold(word, "KEEPTTL") && o.at == nil:
			o.keep = true
		case getex && equalFold(word, "PERSIST") && o.at == nil:
			o.persist = true
		case expires && !o.keep && !o.persist && (o.at == nil || o.expiry == form) && i+1 < len(rest):
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
	o, err := parseSetOptions(args[3:], false)
	if err != nil {
		return err
	}
	d := forever()
	if o.at != nil {
		if d, err = o.expiry.parse(t, args, o.at, 1); err != nil {
			return err
		}
	}
	k, value := parseKey(args[1]), string(args[2])
	old, exists := t.lookup(k)
	if o.get {
		if _, err := t.str(k); err != nil {
			return err
		}
	}
	if o.keep && exists {
		d = unchanged()
	}
	done, err := t.setIf(k, args, value, d, o)
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

// setIf sets a string unless NX or XX forbids it, and reports whether it did. NX asks for the
// mutex as a contender does, so it fails too while it is another's turn.
func (t *keyTx) setIf(k simba.Key, args [][]byte, value string, d lease, o setOptions) (bool, error) {
	old, exists := t.lookup(k)
	switch {
	case o.nx && exists, o.xx && !exists:
		return false, nil
	case k.Part == simba.KeyToken && exists && old.Owner == value:
		return true, nil // as a contender writes what it was told
	case k.Part != simba.KeyLock:
		return false, viewError(args, k)
	case o.nx && !t.Open(k.Mutex, value):
		return false, nil
	}
	t.put(k.Mutex, old, value, d)
	return true, nil
}

func setnx(t *keyTx, args [][]byte) error {
	done, err := t.setIf(parseKey(args[1]), args, string(args[2]), forever(), setOptions{nx: true})
	if err != nil {
		return err
	}
	t.writeFlag(done)
	return nil
}

// setExpiring is SETEX and PSETEX.
func setExpiring(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		d, err := f.parse(t, args, args[2], 1)
		if err != nil {
			return err
		}
		if _, err := t.setIf(parseKey(args[1]), args, string(args[3]), d, setOptions{}); err != nil {
			return err
		}
		t.w.Simple("OK")
		return nil
	}
}

func getset(t *keyTx, args [][]byte) error {
	k := parseKey(args[1])
	old, err := t.str(k)
	if err != nil {
		return err
	}
	if _, err := t.setIf(k, args, string(args[2]), forever(), setOptions{}); err != nil {
		return err
	}
	t.writeValue(old)
	return nil
}

func getdel(t *keyTx, args [][]byte) error {
	k := parseKey(args[1])
	l, err := t.str(k)
	if err != nil {
		return err
	}
	if l.Exists() && k.Part == simba.KeyFence {
		return viewError(args, k)
	}
	t.drop(k)
	t.writeValue(l)
	return nil
}

func getex(t *keyTx, args [][]byte) error {
	o, err := parseSetOptions(args[2:], true)
	if err != nil {
		return err
	}
	k := parseKey(args[1])
	l, err := t.str(k)
	switch {
	case err != nil:
		return err
	case !l.Exists(): // Redis looks at the time only then
	case (o.at != nil || o.persist) && k.Part != simba.KeyLock:
		return viewError(args, k)
	case o.at != nil:
		d, err := o.expiry.parse(t, args, o.at, 1)
		if err != nil {
			return err
		}
		t.renew(k.Mutex, l, d)
	case o.persist && l.EndsAt != 0:
		t.renew(k.Mutex, l, forever())
	}
	t.writeValue(l)
	return nil
}
