package commands

import (
	"math"
	"slices"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// The queue of mutex m is the sorted set simba:{m}:contender: its members are the contenders,
// the first is the next, and a score is when it came. It differs from a sorted set of Redis in
// one thing: of members with the same score the first to come is the first, not the first of
// the alphabet.

const (
	errNotDouble replyError = "ERR value is not a valid float"
	errNaN       replyError = "ERR resulting score is not a number (NaN)"
	errNegative  replyError = "ERR value is out of range, must be positive"
	errNXAndXX   replyError = "ERR XX and NX options at the same time are not compatible"
	errGTLTAndNX replyError = "ERR GT, LT, and/or NX options at the same time are not compatible"
	errIncrPairs replyError = "ERR INCR option supports a single increment-element pair"
)

// queueAt returns the queue behind a key, which is empty if the key does not exist.
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

// queueAdd is a parsed ZADD.
type queueAdd struct {
	nx, xx, gt, lt, changed, incr bool
	places                        []simba.QueueMember
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
		a.places = append(a.places, simba.QueueMember{Contender: string(rest[1]), Score: score})
	}
	return a, nil
}

// score returns the score that a contender gets, and whether it gets it: it has old now, or is
// no member.
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
	var added, updated int64
	var score float64
	var done bool
	for _, p := range a.places {
		was, member := t.Queued(k.Mutex, p.Contender)
		old := was.Score
		score, done = a.score(member, old, p.Score)
		switch {
		case math.IsNaN(score): // by INCR, so that it is the only one
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

// plusZero makes 0 of -0, which a sorted set of Redis does not keep while it is small.
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
	if len(args) == 2 && len(first) == 1 { // without a count, RESP3 has no pairs either
		t.w.Array(2)
		writePlace(t.w, first[0])
		return nil
	}
	writePlaces(t.w, first, true)
	return nil
}

// placing makes a command of what writes the reply from a member's place, which has the index
// i of n; a member that is not in the queue is answered by null.
func placing(reply func(w *resp.Writer, p simba.QueueMember, i, n int)) keyedCommand {
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
