package commands

import (
	"math"
	"slices"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// The queue of mutex m is the sorted set simba:{m}:contender. Its members are the contenders, and
// the score of a member is its time of arrival. Members with equal scores are in the order of their
// arrival. In Redis they would be in the order of their bytes.

var queueCommands = []command{
	{
		name: "zadd", arity: -4, flags: write | denyoom | fast, categories: catSortedSet, keys: oneKey("RW", "update"), actor: newMembers,
		group: "sorted-set", since: "1.2.0", keyed: zadd,
		summary: "Add one or more contenders to the queue of a mutex, or move them in it",
		args:    "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
	},
	{
		name: "zrem", arity: -3, flags: write | fast, categories: catSortedSet, keys: oneKey("RW", "delete"), actor: oldMembers,
		group: "sorted-set", since: "1.2.0", keyed: zrem,
		summary: "Remove one or more contenders from the queue of a mutex; a free mutex is handed off to them",
		args:    "key member [member ...]",
	},
	{
		name: "zpopmin", arity: -2, flags: write | fast, categories: catSortedSet, keys: oneKey("RW", "access", "delete"),
		group: "sorted-set", since: "5.0.0", keyed: zpopmin,
		summary: "Remove and return the next contenders from the queue of a mutex; a free mutex is handed off to them",
		args:    "key [count]",
	},
	{
		name: "zrank", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "2.0.0", keyed: memberReply(zrank),
		summary: "Determine the index of a contender in the queue of a mutex",
		args:    "key member",
	},
	{
		name: "zrevrank", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "2.0.0", keyed: memberReply(zrevrank),
		summary: "Determine the index of a contender in the queue of a mutex, counted from its end",
		args:    "key member",
	},
	{
		name: "zscore", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: zscore,
		summary: "Get the score of a contender in the queue of a mutex, its time of arrival in Unix seconds",
		args:    "key member",
	},
	{
		name: "zcard", arity: 2, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO"),
		group: "sorted-set", since: "1.2.0", keyed: zcard,
		summary: "Get the number of contenders in the queue of a mutex",
		args:    "key",
	},
}

const (
	errNotDouble replyError = "ERR value is not a valid float"
	errNaN       replyError = "ERR resulting score is not a number (NaN)"
	errNegative  replyError = "ERR value is out of range, must be positive"
	errNXAndXX   replyError = "ERR XX and NX options at the same time are not compatible"
	errGTLTAndNX replyError = "ERR GT, LT, and/or NX options at the same time are not compatible"
	errIncrPairs replyError = "ERR INCR option supports a single increment-element pair"
)

// queueAt returns the queue behind a key. If the key does not exist, the queue is empty.
func queueAt(t *keyTx, key []byte) (simba.Key, []simba.QueueMember, error) {
	k := parseKey(key)
	if k.Part == simba.KeyQueue {
		return k, t.Queue(k.Mutex), nil
	}
	if _, exists := t.lookup(k); exists {
		return k, nil, errWrongType
	}
	return k, nil, nil
}

type queueAdd struct {
	nx, xx, gt, lt, changed, incr bool
	members                       []simba.QueueMember
}

func parseQueueAdd(args [][]byte) (a queueAdd, err error) {
	rest := args[2:]
options:
	for ; len(rest) > 0; rest = rest[1:] {
		switch word := rest[0]; {
		case equalFold(word, "NX"):
			a.nx = true
		case equalFold(word, "XX"):
			a.xx = true
		case equalFold(word, "GT"):
			a.gt = true
		case equalFold(word, "LT"):
			a.lt = true
		case equalFold(word, "CH"):
			a.changed = true
		case equalFold(word, "INCR"):
			a.incr = true
		default:
			break options
		}
	}
	switch {
	case len(rest) == 0 || len(rest)%2 != 0:
		return a, errSyntax
	case a.nx && a.xx:
		return a, errNXAndXX
	case a.gt && a.nx, a.lt && a.nx, a.gt && a.lt:
		return a, errGTLTAndNX
	case a.incr && len(rest) > 2:
		return a, errIncrPairs
	}
	for ; len(rest) > 0; rest = rest[2:] {
		score, inRange, ok := parseDouble(string(rest[0]))
		if !ok || !inRange {
			return a, errNotDouble
		}
		a.members = append(a.members, simba.QueueMember{Contender: string(rest[1]), Score: score})
	}
	return a, nil
}

// score returns the new score of a contender, and whether ZADD may set it. If the contender is a
// member, old is its present score.
func (a *queueAdd) score(member bool, old, score float64) (float64, bool) {
	if !member {
		return score, !a.xx
	}
	if a.incr {
		score += old
	}
	return score, !a.nx && !(a.gt && score <= old) && !(a.lt && score >= old)
}

func zadd(t *keyTx, args [][]byte) error {
	a, err := parseQueueAdd(args)
	if err != nil {
		return err
	}
	k := parseKey(args[1])
	if k.Part != simba.KeyQueue {
		if _, exists := t.lookup(k); exists {
			return errWrongType
		}
		return replyErrorf("ERR '%s' works only on the queue of a mutex, simba:{mutex}:contender: this is a lock server", nameOf(args))
	}
	isNew := func(p simba.QueueMember) bool { _, member := t.Queued(k.Mutex, p.Contender); return !member }
	if !a.xx && t.QueueFull(k.Mutex) && slices.ContainsFunc(a.members, isNew) {
		return simba.ErrOutOfMemory
	}
	var added, updated int64
	var score float64
	var done bool
	for _, p := range a.members {
		was, member := t.Queued(k.Mutex, p.Contender)
		old := was.Score
		score, done = a.score(member, old, p.Score)
		switch {
		case math.IsNaN(score): // only with INCR, which has one member, so nothing has changed
			return errNaN
		case !done || member && score == old:
			continue
		case member:
			updated++
		default:
			added++
		}
		t.Enqueue(k.Mutex, p.Contender, plusZero(score))
	}
	switch {
	case a.incr && !done:
		t.w.Null()
	case a.incr:
		t.w.Double(score)
	case a.changed:
		t.w.Int(added + updated)
	default:
		t.w.Int(added)
	}
	return nil
}

// plusZero turns -0 into 0, as a small sorted set of Redis does.
func plusZero(f float64) float64 {
	if f == 0 {
		return 0
	}
	return f
}

func zrem(t *keyTx, args [][]byte) error {
	k, queue, err := queueAt(t, args[1])
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

func zpopmin(t *keyTx, args [][]byte) error {
	count := int64(1)
	switch len(args) {
	case 2:
	case 3:
		n, ok := parseInt(args[2])
		if !ok || n < 0 {
			return errNegative
		}
		count = n
	default:
		return errSyntax
	}
	k, queue, err := queueAt(t, args[1])
	if err != nil {
		return err
	}
	first := slices.Clone(queue[:min(count, int64(len(queue)))])
	for _, p := range first {
		t.Dequeue(k.Mutex, p.Contender)
	}
	if len(args) == 2 && len(first) == 1 { // without a count, the reply is flat in RESP3 too
		t.w.Array(2)
		writeMember(t.w, first[0])
		return nil
	}
	writeMembers(t.w, first, true)
	return nil
}

// memberReply returns a command that looks up a contender in a queue. If the queue has the
// contender, the command calls reply with its index i and the length n of the queue. Otherwise it
// replies null.
func memberReply(reply func(w *resp.Writer, p simba.QueueMember, i, n int)) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		_, queue, err := queueAt(t, args[1])
		if err != nil {
			return err
		}
		i := slices.IndexFunc(queue, func(p simba.QueueMember) bool { return p.Contender == string(args[2]) })
		if i < 0 {
			t.w.Null()
			return nil
		}
		reply(t.w, queue[i], i, len(queue))
		return nil
	}
}

func zscore(t *keyTx, args [][]byte) error {
	k := parseKey(args[1])
	if k.Part != simba.KeyQueue {
		if _, exists := t.lookup(k); exists {
			return errWrongType
		}
		t.w.Null()
		return nil
	}
	p, ok := t.Queued(k.Mutex, string(args[2]))
	if !ok {
		t.w.Null()
		return nil
	}
	t.w.Double(p.Score)
	return nil
}

func zrank(w *resp.Writer, _ simba.QueueMember, i, _ int)    { w.Int(int64(i)) }
func zrevrank(w *resp.Writer, _ simba.QueueMember, i, n int) { w.Int(int64(n - 1 - i)) }

func zcard(t *keyTx, args [][]byte) error {
	_, queue, err := queueAt(t, args[1])
	if err != nil {
		return err
	}
	t.w.Int(int64(len(queue)))
	return nil
}
