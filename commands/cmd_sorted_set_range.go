package commands

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

var queueRangeCommands = []command{
	{
		name: "zrange", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: ranging(queueRange{}, true),
		summary: "Return a range of contenders in the queue of a mutex",
		args:    "key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]",
	},
	{
		name: "zrevrange", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: ranging(queueRange{reverse: true}, false),
		summary: "Return a range of contenders in the queue of a mutex, by index, the last one first",
		args:    "key start stop [WITHSCORES]",
	},
	{
		name: "zrangebyscore", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.0.5", keyed: ranging(queueRange{byScore: true}, false),
		summary: "Return a range of contenders in the queue of a mutex, by score",
		args:    "key min max [WITHSCORES] [LIMIT offset count]",
	},
}

const (
	errNotBound   replyError = "ERR min or max is not a float"
	errRangeLimit replyError = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	errLexScores  replyError = "ERR syntax error, WITHSCORES not supported in combination with BYLEX"
	errLex        replyError = "ERR BYLEX is not served: a queue is in the order of its scores"
)

type queueRange struct {
	byScore, reverse bool
	scores           bool       // the reply includes the scores
	first, last      int64      // range by index in the order of the reply; negative = from the end
	low, high        scoreBound // range by score
	offset, count    int64      // LIMIT of a range by score; a negative count = all
}

// ranging returns a command for a form of ZRANGE. If free is true, the options BYSCORE and REV may
// change the form.
func ranging(form queueRange, free bool) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		r := form
		if err := r.parse(args, free); err != nil {
			return err
		}
		_, queue, err := queueAt(t, args[1])
		if err != nil {
			return err
		}
		writeMembers(t.w, r.of(queue), r.scores)
		return nil
	}
}

func (r *queueRange) parse(args [][]byte, free bool) error {
	r.count = -1
	lex := false
	for rest := args[4:]; len(rest) > 0; rest = rest[1:] {
		switch word := rest[0]; {
		case equalFold(word, "WITHSCORES"):
			r.scores = true
		case equalFold(word, "LIMIT") && len(rest) > 2:
			var ok1, ok2 bool
			r.offset, ok1 = parseInt(rest[1])
			r.count, ok2 = parseInt(rest[2])
			if !ok1 || !ok2 {
				return errNotInteger
			}
			rest = rest[2:]
		case free && !r.reverse && equalFold(word, "REV"):
			r.reverse = true
		case free && !r.byScore && !lex && equalFold(word, "BYSCORE"):
			r.byScore = true
		case free && !r.byScore && !lex && equalFold(word, "BYLEX"):
			lex = true
		default:
			return errSyntax
		}
	}
	switch {
	case lex && r.scores:
		return errLexScores
	case lex:
		return errLex
	case r.byScore:
		return r.parseScores(args[2], args[3])
	case r.count != -1:
		return errRangeLimit
	}
	var ok1, ok2 bool
	r.first, ok1 = parseInt(args[2])
	r.last, ok2 = parseInt(args[3])
	if !ok1 || !ok2 {
		return errNotInteger
	}
	return nil
}

func (r *queueRange) parseScores(low, high []byte) error {
	if r.reverse {
		low, high = high, low
	}
	var ok1, ok2 bool
	r.low, ok1 = parseScoreBound(string(low))
	r.high, ok2 = parseScoreBound(string(high))
	if !ok1 || !ok2 {
		return errNotBound
	}
	return nil
}

// of returns the members of a queue that are in the range, in the order of the reply.
func (r *queueRange) of(queue []simba.QueueMember) []simba.QueueMember {
	n := int64(len(queue))
	var from, to int64
	if r.byScore {
		from = int64(sort.Search(len(queue), func(i int) bool { return !r.low.above(queue[i].Score) }))
		to = int64(sort.Search(len(queue), func(i int) bool { return r.high.below(queue[i].Score) }))
		queue = queue[from:max(from, to)]
		n = int64(len(queue))
		if from, to = r.offset, n; r.offset < 0 {
			from = n
		}
		if r.count >= 0 && r.count < n-from {
			to = from + r.count
		}
	} else {
		from, to = r.first, r.last
		if from < 0 {
			from = max(from+n, 0)
		}
		if to < 0 {
			to += n
		}
		to = min(to, n-1) + 1
	}
	if from >= to {
		return nil
	}
	if !r.reverse {
		return queue[from:to]
	}
	part := slices.Clone(queue[n-to : n-from])
	slices.Reverse(part)
	return part
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
		switch {
		case pairs:
			w.Array(2)
			writeMember(w, p)
		case scores:
			writeMember(w, p)
		default:
			w.BulkString(p.Contender)
		}
	}
}

func writeMember(w *resp.Writer, p simba.QueueMember) {
	w.BulkString(p.Contender)
	w.Double(p.Score)
}

type scoreBound struct {
	score   float64
	without bool // the range excludes the bound itself
}

// above reports whether a score is too low for the lower bound b.
func (b scoreBound) above(score float64) bool {
	return b.score > score || b.without && b.score == score
}

// below reports whether a score is too high for the upper bound b.
func (b scoreBound) below(score float64) bool {
	return b.score < score || b.without && b.score == score
}

// parseScoreBound reads a bound as Redis does, less strictly than a score of ZADD. Blanks may
// precede the number. An empty number is 0. A number beyond the range of a double is infinite.
func parseScoreBound(s string) (b scoreBound, ok bool) {
	s, b.without = strings.CutPrefix(s, "(")
	if s = strings.TrimLeft(s, " \t\n\v\f\r"); s == "" {
		return b, true
	}
	b.score, _, ok = parseDouble(s)
	return b, ok
}

// parseDouble reads a number as C's strtod does, but refuses NaN. Unlike strconv.ParseFloat, it
// accepts hexadecimal integers and refuses underscores. inRange is false if the number overflows or
// underflows a double.
func parseDouble(s string) (f float64, inRange, ok bool) {
	mantissa, digits, exponent := strings.ToLower(s), "123456789", "e"
	if unsigned := strings.TrimLeft(mantissa, "+-"); strings.HasPrefix(unsigned, "0x") {
		mantissa, digits, exponent = strings.Replace(mantissa, "0x", "", 1), digits+"abcdef", "p"
		if !strings.Contains(mantissa, exponent) {
			s += "p0"
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	inRange = err == nil
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) || strings.Contains(s, "_") {
		return 0, false, false
	}
	mantissa, _, _ = strings.Cut(mantissa, exponent)
	if f == 0 && strings.ContainsAny(mantissa, digits) { // an underflow: the number is not 0
		inRange = false
	}
	return f, inRange, true
}
