package commands

import (
	"math"
	"slices"
	"strconv"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// A hash is a tenure with fields. Reentrant locks of other libraries use a hash: each field names
// an owner, and its value is the owner's count. HSET of the first field takes the mutex, and the
// name of this field becomes the owner. HDEL of the last field releases the mutex. The expiry of
// the key is the end of the lease.

var hashCommands = []command{
	{
		name: "hset", arity: -4, flags: write | denyoom | fast, keys: oneKey(valueWritten), actor: fieldValues,
		since: "2.0.0", keyed: hset,
		summary: "Set the string value of a hash field; the first field of a hash takes the mutex",
		args:    "key field value [field value ...]",
	},
	{
		name: "hget", arity: 3, flags: readonly | fast, keys: oneKey(valueRead), since: "2.0.0", keyed: reading(hget),
		summary: "Get the value of a hash field",
		args:    "key field",
	},
	{
		name: "hgetall", arity: 2, flags: readonly, keys: oneKey(valueRead), since: "2.0.0", keyed: reading(hgetall),
		summary: "Get all the fields and values in a hash",
		args:    "key",
	},
	{
		name: "hdel", arity: -3, flags: write | fast, keys: oneKey(valueWritten), since: "2.0.0", keyed: hdel,
		summary: "Delete one or more hash fields; without a field left, the mutex is free",
		args:    "key field [field ...]",
	},
	{
		name: "hexists", arity: 3, flags: readonly | fast, keys: oneKey(existence), since: "2.0.0", keyed: reading(hexists),
		summary: "Determine if a hash field exists",
		args:    "key field",
	},
	{
		name: "hincrby", arity: 4, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), actor: oneValue,
		since: "2.0.0", keyed: hincrby,
		summary: "Increment the integer value of a hash field by the given number",
		args:    "key field increment",
	},
	{
		name: "hlen", arity: 2, flags: readonly | fast, keys: oneKey(existence), since: "2.0.0", keyed: reading(hlen),
		summary: "Get the number of fields in a hash",
		args:    "key",
	},
	{
		name: "hkeys", arity: 2, flags: readonly, keys: oneKey(valueRead), since: "2.0.0", keyed: reading(hkeys),
		summary: "Get all the fields in a hash",
		args:    "key",
	},
}

// A tenure with its fields is one record on disk. So the fields are limited.
const (
	maxHashFields = 1024
	maxHashBytes  = 64 << 10 // the sum of all names and values
)

var errHashTooLarge = replyErrorf("ERR hash too large: at most %d fields of %d bytes in all are allowed", maxHashFields, maxHashBytes)

const (
	errIncrOverflow replyError = "ERR increment or decrement would overflow"
)

// hash is a key and the lock behind it. If the key does not exist, lock is zero.
type hash struct {
	key  simba.Key
	lock simba.Lock
}

// hashAt returns the hash behind the key of a command. For a string it returns an error.
func hashAt(t *keyTx, args [][]byte) (hash, error) {
	h := hash{key: t.key(args)}
	lock, exists := t.lookup(h.key)
	if exists && lock.Fields == nil {
		return h, errWrongType
	}
	h.lock = lock
	return h, nil
}

// hashToSet is hashAt for a command that sets fields. The command may change the returned fields,
// which are a copy.
func hashToSet(t *keyTx, args [][]byte) (hash, error) {
	h, err := hashAt(t, args)
	switch {
	case err != nil:
	case h.key.Part == simba.KeyQueue:
		err = replyErrorf("ERR '%s' does not work on the queue of a mutex, which is a sorted set", nameOf(args))
	case h.key.Part != simba.KeyLock:
		err = viewError(args, h.key)
	}
	h.lock.Fields = slices.Clone(h.lock.Fields)
	return h, err
}

func (h *hash) find(name []byte) int {
	return slices.IndexFunc(h.lock.Fields, func(f simba.Field) bool { return f.Name == string(name) })
}

func (h *hash) set(name []byte, value string) bool {
	if i := h.find(name); i >= 0 {
		h.lock.Fields[i].Value = value
		return false
	}
	h.lock.Fields = append(h.lock.Fields, simba.Field{Name: string(name), Value: value})
	return true
}

// store writes the hash. A new hash takes the mutex. An existing hash keeps its tenure.
func (h *hash) store(t *keyTx) error {
	size := 0
	for _, f := range h.lock.Fields {
		size += len(f.Name) + len(f.Value)
	}
	if size > maxHashBytes || len(h.lock.Fields) > maxHashFields {
		return errHashTooLarge
	}
	if h.lock.Exists() {
		t.Change(h.key.Mutex, h.lock, false)
		return nil
	}
	h.lock.Owner = h.lock.Fields[0].Name
	h.lock.TTL = simba.Endless
	t.Take(h.key.Mutex, h.lock)
	return nil
}

func hset(t *keyTx, args [][]byte) error {
	if len(args)%2 != 0 {
		return replyErrorf("ERR wrong number of arguments for '%s' command", nameOf(args))
	}
	h, err := hashToSet(t, args)
	if err != nil {
		return err
	}
	added := int64(0)
	for i := 2; i < len(args); i += 2 {
		if h.set(args[i], string(args[i+1])) {
			added++
		}
	}
	if err := h.store(t); err != nil {
		return err
	}
	t.w.Int(added)
	return nil
}

func hincrby(t *keyTx, args [][]byte) error {
	by, ok := parseInt(args[3])
	if !ok {
		return errNotInteger
	}
	h, err := hashToSet(t, args)
	if err != nil {
		return err
	}
	var n int64
	if i := h.find(args[2]); i >= 0 {
		if n, ok = parseInt([]byte(h.lock.Fields[i].Value)); !ok {
			return replyError("ERR hash value is not an integer")
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return errIncrOverflow
	}
	h.set(args[2], strconv.FormatInt(n+by, 10))
	if err := h.store(t); err != nil {
		return err
	}
	t.w.Int(n + by)
	return nil
}

func hdel(t *keyTx, args [][]byte) error {
	h, err := hashAt(t, args)
	if err != nil {
		return err
	}
	gone := make(map[string]bool, len(args)-2)
	for _, name := range args[2:] {
		gone[string(name)] = true
	}
	var left []simba.Field
	owned := false // one of the remaining fields has the owner's name
	for _, f := range h.lock.Fields {
		if !gone[f.Name] {
			left = append(left, f)
			owned = owned || f.Name == h.lock.Owner
		}
	}
	deleted := len(h.lock.Fields) - len(left)
	switch {
	case deleted == 0:
	case left == nil:
		t.Drop(h.key.Mutex)
	default:
		h.lock.Fields = left
		if !owned {
			h.lock.Owner = left[0].Name
		}
		t.Change(h.key.Mutex, h.lock, false)
	}
	t.w.Int(int64(deleted))
	return nil
}

// reading returns a command that looks up a hash and calls reply.
func reading(reply func(w *resp.Writer, h *hash, args [][]byte)) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		h, err := hashAt(t, args)
		if err != nil {
			return err
		}
		reply(t.w, &h, args)
		return nil
	}
}

func hget(w *resp.Writer, h *hash, args [][]byte) {
	if i := h.find(args[2]); i >= 0 {
		w.BulkString(h.lock.Fields[i].Value)
		return
	}
	w.Null()
}

func hgetall(w *resp.Writer, h *hash, _ [][]byte) {
	w.Map(len(h.lock.Fields))
	for _, f := range h.lock.Fields {
		w.BulkString(f.Name)
		w.BulkString(f.Value)
	}
}

func hkeys(w *resp.Writer, h *hash, _ [][]byte) {
	w.Array(len(h.lock.Fields))
	for _, f := range h.lock.Fields {
		w.BulkString(f.Name)
	}
}

func hexists(w *resp.Writer, h *hash, args [][]byte) {
	writeFlag(w, h.find(args[2]) >= 0)
}

func hlen(w *resp.Writer, h *hash, _ [][]byte) { w.Int(int64(len(h.lock.Fields))) }
