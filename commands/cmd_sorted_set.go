package commands

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// The queue of mutex m is the sorted set simba:{m}:contender. Its members are the contenders, and
// the score of a member is its time of arrival. Members with equal scores are in the order of their
// arrival. In Redis they would be in the order of their bytes.

var queueCommands = []command{
	{
		name: "zadd", arity: -4, flags: write | denyoom | fast, keys: oneKey(valueWritten), actor: newMembers,
		since: "1.2.0", keyed: zadd,
		summary: "Add one or more contenders to the queue of a mutex, or move them in it",
		args:    "key [NX] score member [score member ...]",
	},
	{
		name: "zrem", arity: -3, flags: write | fast, keys: oneKey(valueWritten), actor: oldMembers, since: "1.2.0", keyed: zrem,
		summary: "Remove one or more contenders from the queue of a mutex; a free mutex is handed off to them",
		args:    "key member [member ...]",
	},
	{
		name: "zscore", arity: 3, flags: readonly | fast, keys: oneKey(valueRead), since: "1.2.0", keyed: zscore,
		summary: "Get the score of a contender in the queue of a mutex, its time of arrival in Unix seconds",
		args:    "key member",
	},
	{
		name: "zcard", arity: 2, flags: readonly | fast, keys: oneKey(existence), since: "1.2.0", keyed: zcard,
		summary: "Get the number of contenders in the queue of a mutex",
		args:    "key",
	},
	{
		name: "zrange", arity: -4, flags: readonly, keys: oneKey(valueRead), since: "1.2.0", keyed: ranging(false),
		summary: "Return a range of contenders in the queue of a mutex, by index",
		args:    "key start stop [WITHSCORES]",
	},
	{
		name: "zrevrange", arity: -4, flags: readonly, keys: oneKey(valueRead), since: "1.2.0", keyed: ranging(true),
		summary: "Return a range of contenders in the queue of a mutex, by index, the last one first",
		args:    "key start stop [WITHSCORES]",
	},
}

const (
	errRangeOption replyError = "ERR a range of a queue is by index, and its only option is WITHSCORES: this is a lock server"
	errAddOption   replyError = "ERR 'zadd' serves only the option NX: this is a lock server"
)

// queueAt returns the queue behind the key of a command. If the key does not exist, the queue is
// empty.
func queueAt(t *keyTx, args [][]byte) (simba.Key, []simba.QueueMember, error) {
	k, err := queueKey(t, args)
	if err != nil || k.Part != simba.KeyQueue {
		return k, nil, err
	}
	return k, t.Queue(k.Mutex), nil
}

// queueKey returns the key of a command. It returns an error if the key exists and is no queue.
func queueKey(t *keyTx, args [][]byte) (simba.Key, error) {
	k := t.key(args)
	if k.Part != simba.KeyQueue {
		if _, exists := t.lookup(k); exists {
			return k, errWrongType
		}
	}
	return k, nil
}

type queueAdd struct {
	nx      bool
	members []simba.QueueMember
}

func parseQueueAdd(args [][]byte) (a queueAdd, err error) {
	rest := args[2:]
options:
	for ; len(rest) > 0; rest = rest[1:] {
		switch word := rest[0]; {
		case equalFold(word, "NX"):
			a.nx = true
		case equalFold(word, "XX"), equalFold(word, "CH"), equalFold(word, "GT"), equalFold(word, "LT"), equalFold(word, "INCR"):
			return a, errAddOption
		default:
			break options
		}
	}
	if len(rest) == 0 || len(rest)%2 != 0 {
		return a, errSyntax
	}
	for ; len(rest) > 0; rest = rest[2:] {
		score, err := strconv.ParseFloat(string(rest[0]), 64)
		if err != nil || math.IsNaN(score) || bytes.ContainsAny(rest[0], "_xX") {
			return a, replyError("ERR value is not a valid float")
		}
		a.members = append(a.members, simba.QueueMember{Contender: string(rest[1]), Score: score})
	}
	return a, nil
}

func zadd(t *keyTx, args [][]byte) error {
	a, err := parseQueueAdd(args)
	if err != nil {
		return err
	}
	k, err := queueKey(t, args)
	switch {
	case err != nil:
		return err
	case k.Part != simba.KeyQueue:
		return replyErrorf("ERR '%s' works only on the queue of a mutex, simba:{mutex}:contender: this is a lock server", nameOf(args))
	}
	isNew := func(p simba.QueueMember) bool { _, member := t.Queued(k.Mutex, p.Contender); return !member }
	if t.QueueFull(k.Mutex) && slices.ContainsFunc(a.members, isNew) {
		return simba.ErrOutOfMemory
	}
	var added int64
	for _, p := range a.members {
		was, member := t.Queued(k.Mutex, p.Contender)
		switch {
		case !member:
			added++
		case a.nx || was.Score == p.Score:
			continue
		}
		t.Enqueue(k.Mutex, p.Contender, p.Score+0) // +0 turns -0 into 0, as a small sorted set of Redis does
	}
	t.w.Int(added)
	return nil
}

func zrem(t *keyTx, args [][]byte) error {
	k, queue, err := queueAt(t, args)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(args)-2)
	for _, member := range args[2:] {
		asked[string(member)] = true
	}
	queue = slices.DeleteFunc(slices.Clone(queue), func(p simba.QueueMember) bool { return !asked[p.Contender] })
	for _, p := range queue {
		t.Dequeue(k.Mutex, p.Contender)
	}
	t.w.Int(int64(len(queue)))
	return nil
}

func zscore(t *keyTx, args [][]byte) error {
	k, err := queueKey(t, args)
	if err != nil {
		return err
	}
	if p, ok := t.Queued(k.Mutex, string(args[2])); ok && k.Part == simba.KeyQueue {
		t.w.Double(p.Score)
	} else {
		t.w.Null()
	}
	return nil
}

func zcard(t *keyTx, args [][]byte) error {
	_, queue, err := queueAt(t, args)
	if err != nil {
		return err
	}
	t.w.Int(int64(len(queue)))
	return nil
}

// ranging returns ZRANGE, or ZREVRANGE if reverse is true.
func ranging(reverse bool) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		scores := false
		for _, word := range args[4:] {
			switch {
			case equalFold(word, "WITHSCORES"):
				scores = true
			case equalFold(word, "REV"), equalFold(word, "BYSCORE"), equalFold(word, "BYLEX"), equalFold(word, "LIMIT"):
				return errRangeOption
			default:
				return errSyntax
			}
		}
		first, ok1 := parseInt(args[2])
		last, ok2 := parseInt(args[3])
		if !ok1 || !ok2 {
			return errNotInteger
		}
		_, queue, err := queueAt(t, args)
		if err != nil {
			return err
		}
		if reverse {
			queue = slices.Clone(queue)
			slices.Reverse(queue)
		}
		n := int64(len(queue))
		if first < 0 {
			first = max(first+n, 0)
		}
		if last < 0 {
			last += n
		}
		last = min(last, n-1)
		if first > last {
			queue = nil
		} else {
			queue = queue[first : last+1]
		}
		writeMembers(t.w, queue, scores)
		return nil
	}
}

// writeMembers replies with members, or with pairs of a member and its score. In RESP2 the pairs
// are one flat array.
func writeMembers(w *resp.Writer, members []simba.QueueMember, scores bool) {
	pairs := scores && w.Proto() == 3
	n := len(members)
	if scores && !pairs {
		n *= 2
	}
	w.Array(n)
	for _, p := range members {
		if pairs {
			w.Array(2)
		}
		w.BulkString(p.Contender)
		if scores {
			w.Double(p.Score)
		}
	}
}

// newMembers are the members that ZADD adds.
var newMembers = actor{ids: func(args [][]byte) [][]byte {
	if a, err := parseQueueAdd(args); err == nil {
		return everySecond(args[len(args)-2*len(a.members)+1:])
	}
	return nil // the command will fail
}}
