package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

type reqKind uint8

const (
	reqHello reqKind = iota
	reqAcquire
	reqGuard
	reqRelease
	reqBreak
	reqCheck
	reqOwner
	reqQueue
	reqHistory
	reqSet
	reqGet
	reqDelete
	reqWatch
	reqExec
	reqSubscribe
)

var reqNames = [...]string{
	"hello", "acquire", "guard", "release", "break", "check", "owner", "queue", "history",
	"set", "get", "delete", "watch", "exec", "subscribe",
}

// request is a command that a client has sent, or several that it sends together.
type request struct {
	kind            reqKind
	mx              *mutex
	who             string
	ttl, transition time.Duration
	wait            bool
	limit           time.Duration // the longest wait; 0 = no limit
	noQueue         bool
	session         bool
	token           uint64
	reason          string

	wire *wire
	sent time.Duration
	got  []any    // the replies so far
	due  *outcome // the expected outcome; nil = the request still waits
}

func (r *request) name() string {
	name := reqNames[r.kind]
	switch {
	case r.wait:
		name += " wait"
	case r.noQueue:
		name += " noqueue"
	}
	if r.session {
		name += " session"
	}
	if r.token != 0 && r.kind != reqCheck {
		name += " token"
	}
	return name
}

func (r *request) String() string {
	s := r.name()
	if r.mx == nil {
		return s
	}
	s += " " + r.mx.name
	switch r.kind {
	case reqAcquire, reqGuard, reqSet, reqExec:
		s += fmt.Sprintf(" ttl %v", r.ttl)
		if r.transition > 0 {
			s += fmt.Sprintf("+%v", r.transition)
		}
		if r.wait && r.limit > 0 {
			s += fmt.Sprintf(" limit %v", r.limit)
		}
	}
	return s
}

func (r *request) again() *request {
	return &request{kind: r.kind, mx: r.mx, who: r.who, ttl: r.ttl, transition: r.transition,
		wait: r.wait, limit: r.limit, noQueue: r.noQueue, session: r.session, token: r.token, reason: r.reason}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// deleteScript is the script that Redis' documentation recommends to release a lock.
const deleteScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

// encode returns the bytes of the request and the number of its replies.
func (r *request) encode() (b []byte, replies int) {
	one := func(words ...string) { b, replies = append(b, command(words...)...), replies+1 }
	if r.kind == reqHello {
		one("HELLO", "3")
		return b, replies
	}
	m := r.mx.name
	switch r.kind {
	case reqAcquire:
		words := []string{"SIMBA.ACQUIRE", m, r.who, millis(r.ttl)}
		if r.transition > 0 {
			words = append(words, "TRANSITION", millis(r.transition))
		}
		if r.wait {
			words = append(words, "WAIT", millis(r.limit))
		}
		if r.noQueue {
			words = append(words, "NOQUEUE")
		}
		if r.session {
			words = append(words, "SESSION")
		}
		one(words...)
	case reqGuard:
		words := []string{"SIMBA.GUARD", m, r.who, millis(r.ttl)}
		if r.transition > 0 {
			words = append(words, "TRANSITION", millis(r.transition))
		}
		one(r.withToken(words)...)
	case reqRelease:
		one(r.withToken([]string{"SIMBA.RELEASE", m, r.who})...)
	case reqBreak:
		one("SIMBA.BREAK", m, "REASON", r.reason)
	case reqCheck:
		one("SIMBA.CHECK", m, strconv.FormatUint(r.token, 10))
	case reqOwner:
		one("SIMBA.OWNER", m)
	case reqQueue:
		one("SIMBA.QUEUE", m)
	case reqHistory:
		one("SIMBA.HISTORY", m, "COUNT", "10000")
	case reqSet:
		one("SET", m, r.who, "NX", "PX", millis(r.ttl))
	case reqGet:
		one("GET", m)
	case reqDelete:
		one("EVAL", deleteScript, "1", m, r.who)
	case reqWatch:
		one("WATCH", m)
		one("GET", m)
	case reqExec:
		one("MULTI")
		one("SET", m, r.who, "NX", "PX", millis(r.ttl))
		one("EXEC")
	case reqSubscribe:
		one("SUBSCRIBE", "simba:{"+m+"}:"+r.who)
	}
	return b, replies
}

func (r *request) withToken(words []string) []string {
	if r.token != 0 {
		words = append(words, "TOKEN", strconv.FormatUint(r.token, 10))
	}
	return words
}

func (r *request) missing() int {
	_, n := r.encode()
	return n - len(r.got)
}

// send sends the client's requests in one write.
func (w *world) send(k *wire, requests ...*request) {
	var b []byte
	for _, r := range requests {
		text, _ := r.encode()
		b = append(b, text...)
	}
	if w.write(k, b) {
		w.sent(k, requests...)
	}
}

// sendHalf sends a random part of a request. sendRest sends the other part.
func (w *world) sendHalf(k *wire, r *request) {
	b, _ := r.encode()
	n := 1 + w.rng.IntN(len(b)-1)
	if w.write(k, b[:n]) {
		k.half, k.halfOf = slices.Clone(b[n:]), r
		w.logf(k, w.now(), "sends half of: %v", r)
	}
}

func (w *world) sendRest(k *wire) {
	r, b := k.halfOf, k.half
	k.halfOf, k.half = nil, nil
	if w.write(k, b) {
		w.sent(k, r)
	}
}

// write sends bytes to the server, and reports whether the server read them all.
func (w *world) write(k *wire, b []byte) bool {
	k.nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := k.nc.Write(b)
	k.nc.SetWriteDeadline(time.Time{})
	if err == nil {
		return true
	}
	w.logf(k, w.now(), "cannot send: %v", err)
	w.hangUp(k)
	return false
}

// sent applies requests that the server has received to the model.
func (w *world) sent(k *wire, requests ...*request) {
	now := w.now()
	w.model.advance(now)
	for _, r := range requests {
		r.wire, r.sent = k, now
		k.pending = append(k.pending, r)
		w.logf(k, now, "→ %v", r)
		w.count(r.name())
		if r.mx == nil {
			r.due = &outcome{at: now}
			continue
		}
		r.mx.apply(r)
	}
	for _, mx := range w.model.mutexes { // the batch is over
		mx.unblockResumed(true)
		mx.handOff()
	}
}
