package commands

import "github.com/simba-resp/simba-resp"

var genericCommands = []command{
	{
		name: "del", arity: -2, flags: write, keys: manyKeys(valueWritten), since: "1.0.0", keyed: del,
		summary: "Release the mutexes of lock keys, or empty queues",
		args:    "key [key ...]",
	},
	{
		name: "exists", arity: -2, flags: readonly | fast, keys: manyKeys(existence), since: "1.0.0", keyed: exists,
		summary: "Determine if a lock key exists",
		args:    "key [key ...]",
	},
	{
		name: "unlink", arity: -2, flags: write | fast, keys: manyKeys(valueWritten), since: "4.0.0", keyed: del,
		summary: "Release the mutexes of lock keys, or empty queues, as DEL",
		args:    "key [key ...]",
	},
}

func del(t *keyTx, args [][]byte) error {
	for _, key := range args[1:] { // check all keys before the first change
		k := parseKey(key)
		if _, exists := t.lookup(k); exists && k.Part == simba.KeyFence {
			return viewError(args, k)
		}
	}
	return t.countKeys(args, t.drop)
}

func exists(t *keyTx, args [][]byte) error {
	return t.countKeys(args, func(k simba.Key) bool {
		_, exists := t.lookup(k)
		return exists
	})
}

func (t *keyTx) countKeys(args [][]byte, do func(simba.Key) bool) error {
	var n int64
	for _, key := range args[1:] {
		if do(parseKey(key)) {
			n++
		}
	}
	t.w.Int(n)
	return nil
}
