package simulation

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/simba-resp/simba-resp"
)

// The rules that a cluster can break.
const (
	// No two contenders rely on the same mutex at one instant. An owner relies on its lease from the
	// reply until the end that it was told, counted from its request.
	ruleClusterOwner = "one owner"
	// What was acknowledged stays, whoever leads. A lease lasts as long as its owner was told.
	ruleKept = "acknowledged is kept"
	// A token belongs to one tenure. It is larger than each token that anybody was told before.
	ruleClusterTokens = "tokens"
	// No reply contradicts what anybody was told before the request.
	ruleStale = "no stale reply"
	// A majority that runs on a whole network grants.
	ruleProgress = "progress"
	// A member votes for one candidate a term, whatever it forgets in a crash.
	ruleVote = "one vote a term"
	// A process ends only when its disk fails.
	ruleClusterFatal = "a member ends without a fault"
)

// clusterJudge knows what clients were told. clusterWorld.mu guards it.
//
// The engine does what a request asks at some instant between the request and its reply. So a fact
// that was told before the request, and still holds at the reply, must show in the reply.
type clusterJudge struct {
	mutexesByName map[string]*clusterMutex
	greatest      uint64               // the largest token that anybody was told
	owners        map[uint64]string    // by token: the mutex and the owner
	votes         map[[2]uint64]uint64 // by raft's id of a member and the term: for whom it has voted
}

type clusterMutex struct {
	name    string
	told    uint64   // the largest token that anybody was told
	over    uint64   // every tenure up to this token is over, as somebody was told
	overBy  string   // what said so
	holding *tenancy // the last one; may have ended
}

// tenancy is a tenure on which its owner relies.
type tenancy struct {
	owner    string
	token    uint64
	end      time.Duration // the owner relies on it until then
	released bool          // the owner has begun to release it
	session  *simSession   // nil = the lease is not bound
}

func (t *tenancy) relied(now time.Duration) bool { return t != nil && !t.released && now < t.end }

// question is what was known when a client sent a request.
type question struct {
	mx       *clusterMutex
	who      string
	what     string
	at       time.Duration
	told     uint64
	over     uint64
	overBy   string
	greatest uint64
	holding  *tenancy // on which the owner relied
	end      time.Duration
}

func (w *clusterWorld) askLocked(mx *clusterMutex, who, what string) question {
	q := question{mx: mx, who: who, what: what, at: w.now(), told: mx.told, over: mx.over, overBy: mx.overBy, greatest: w.greatest}
	if mx.holding.relied(q.at) {
		q.holding, q.end = mx.holding, mx.holding.end
	}
	return q
}

// binding returns the tenancy that the reply must show, or nil.
func (w *clusterWorld) bindingLocked(q *question) *tenancy {
	if t := q.mx.holding; q.holding != nil && t == q.holding && t.relied(w.now()) {
		return t
	}
	return nil
}

func (q question) String() string {
	return fmt.Sprintf("%s of %s about %s, asked at %v", q.what, q.who, q.mx.name, q.at)
}

// sawLocked judges a token that somebody was shown as that of the present tenure.
func (w *clusterWorld) sawLocked(q *question, owner string, token uint64) {
	mx := q.mx
	switch id := mx.name + " " + owner; {
	case w.owners[token] != "" && w.owners[token] != id:
		w.violateLocked(ruleClusterTokens, "%v: the token %d of %s is that of %s", q, token, id, w.owners[token])
	case token <= q.over:
		w.violateLocked(ruleStale, "%v: it shows the token %d of %s, but %s before that all up to %d are over", q, token, owner, q.overBy, q.over)
	case token < q.told:
		w.violateLocked(ruleStale, "%v: it shows the token %d of %s, but %d was told before", q, token, owner, q.told)
	default:
		w.owners[token] = id
	}
	w.tellLocked(mx, token)
	w.overLocked(mx, token-1, q.String())
}

func (w *clusterWorld) tellLocked(mx *clusterMutex, token uint64) {
	mx.told = max(mx.told, token)
	w.greatest = max(w.greatest, token)
}

func (w *clusterWorld) overLocked(mx *clusterMutex, token uint64, by string) {
	if token > mx.over {
		mx.over, mx.overBy = token, by
	}
	if t := mx.holding; t.relied(w.now()) && t.token <= token {
		w.violateLocked(ruleKept, "%s: the lease of %s with the token %d is over, which it was told lasts until %v", by, t.owner, t.token, t.end)
	}
}

// shownLocked judges a reply that shows a mutex to somebody who does not own it.
func (w *clusterWorld) shownLocked(q *question, owner string, token uint64, left time.Duration) {
	now := w.now()
	if t := w.bindingLocked(q); t != nil {
		switch end := min(t.end, q.end); {
		case token == 0:
			w.violateLocked(ruleKept, "%v: the mutex is free, but %s was told that it owns it with the token %d until %v", q, t.owner, t.token, t.end)
		case token != t.token:
			w.violateLocked(ruleKept, "%v: %s owns the mutex with the token %d, but %s was told that it does with %d until %v", q, owner, token, t.owner, t.token, t.end)
		case left+time.Millisecond <= end-now: // replies have whole milliseconds
			w.violateLocked(ruleKept, "%v: the lease of %s lasts %v more, but it was told until %v", q, owner, left, end)
		}
	}
	if token != 0 {
		w.sawLocked(q, owner, token)
	} else {
		w.overLocked(q.mx, q.told, q.String())
	}
}

// grantedLocked judges a reply that makes somebody the owner, and returns the tenancy.
func (w *clusterWorld) grantedLocked(q *question, o simba.Outcome, mine *tenancy, windows time.Duration) *tenancy {
	now, end := w.now(), q.at+o.Transition
	if o.Transition < windows { // the rest of the lease, rounded up
		end -= time.Millisecond
	}
	is := func(t *tenancy) bool { return t.owner == q.who && t.token == o.Token }
	if t := w.bindingLocked(q); t != nil && !is(t) {
		w.violateLocked(ruleClusterOwner, "%v: %v with the token %d, but %s relies on %d until %v", q, o.Status, o.Token, t.owner, t.token, t.end)
	} else if t := q.mx.holding; t.relied(now) && now < end && !is(t) {
		w.violateLocked(ruleClusterOwner, "%v: %v with the token %d until %v, but %s relies on %d until %v", q, o.Status, o.Token, end, t.owner, t.token, t.end)
	}
	if o.Owner != q.who || o.Transition > windows || o.Token == 0 {
		w.violateLocked(ruleClusterOwner, "%v: %v shows %+v", q, o.Status, o)
	}
	if o.Status == simba.StatusAcquired && o.Token <= q.greatest {
		w.violateLocked(ruleClusterTokens, "%v: a new tenure has the token %d, but %d was told before", q, o.Token, q.greatest)
	}
	w.sawLocked(q, o.Owner, o.Token)
	if now >= end {
		return nil
	}
	if mine != nil && is(mine) && !mine.released {
		mine.end = end
		return mine
	}
	t := &tenancy{owner: q.who, token: o.Token, end: end}
	q.mx.holding = t
	return t
}

// judgeVote judges a message of raft. It returns whether that is a vote for another member. The vote of
// a candidate for itself is not seen: it counts when it is on disk, which may be after the candidate
// has asked others.
func (w *clusterWorld) judgeVote(from int, m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgVoteResp || m.GetReject() {
		return false
	}
	id, candidate := m.GetFrom(), m.GetTo()
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, voted := w.votes[[2]uint64{id, m.GetTerm()}]; voted && before != candidate {
		w.violateLocked(ruleVote, "in term %d member %s has voted for %x and for %x", m.GetTerm(), memberName(from), before, candidate)
	}
	w.votes[[2]uint64{id, m.GetTerm()}] = candidate
	return true
}

// judgeNotice judges a notice that a member publishes.
func (w *clusterWorld) judgeNotice(channel, payload string) {
	if name, ok := simba.ParseEventChannel(channel); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		var n notice
		if err := json.Unmarshal([]byte(payload), &n); err != nil {
			w.violateLocked(ruleStale, "the event %q: %v", payload, err)
			return
		}
		mx := w.mutexesByName[name]
		switch by := fmt.Sprintf("the event %v", n); n.Event {
		case "acquired":
			if id := mx.name + " " + n.Owner; w.owners[n.Token] != "" && w.owners[n.Token] != id {
				w.violateLocked(ruleClusterTokens, "%s: the token is that of %s", by, w.owners[n.Token])
			} else {
				w.owners[n.Token] = id
			}
			w.tellLocked(mx, n.Token)
			w.overLocked(mx, n.Token-1, by)
		case "released", "expired", "broken":
			w.overLocked(mx, n.Token, by)
		}
	}
}
