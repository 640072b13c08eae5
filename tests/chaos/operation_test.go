package chaos

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// began is the zero of the test's clock, which nobody can set.
var began = time.Now()

// instant is a time on the test's clock, in nanoseconds since began.
type instant = int64

// never is later than all other instants. An operation without a reply returns at never.
const never instant = math.MaxInt64

func now() instant { return int64(time.Since(began)) }

func after(at instant, d time.Duration) instant {
	if at > never-int64(d) {
		return never
	}
	return at + int64(d)
}

type kind uint8

const (
	acquire kind = iota // ACQUIRE without WAIT
	wait                // ACQUIRE … WAIT
	guard
	release
	owner
	check
	breakUp

	// Clients send no requests of the kinds below. The function outcomes adds operations of these
	// kinds for further possible effects of a request.
	renewal
	giveBack
)

var kindNames = [...]string{"acquire", "wait", "guard", "release", "owner", "check", "break", "renewal", "give back"}

func (k kind) String() string { return kindNames[k] }

func (k kind) writes() bool { return k != owner && k != check }

// request is a client's request and the instant of its sending.
type request struct {
	kind      kind
	id        int // its number among the operations of the mutex, from 1
	contender string
	token     uint64        // 0 = the request names no token
	lease     time.Duration // both windows together
	server    int           // the server that received it
	roams     bool          // the contender may have a queue entry at another server
	call      instant
	until     instant // the latest instant at which a possible effect may happen; 0 = no limit
	// most is the longest lease among the contender's requests without a reply. Before a wait gets
	// its reply, such a request may renew the lease of the tenure that the wait began.
	most time.Duration
}

// reply is the reply to a request. If owner is empty, the mutex was free.
type reply struct {
	// unknown means that there is no reply, or one that leaves the outcome open. The request may
	// take effect now, later, or never.
	unknown bool
	status  string // of ACQUIRE and GUARD
	done    bool   // RELEASE, CHECK or BREAK replied 1
	owner   string
	token   uint64
	left    time.Duration // until the lease ends; 0 = not in the reply
	ret     instant
}

type operation struct {
	request
	reply
}

func (o operation) String() string {
	what := fmt.Sprintf("%d: %s", o.id, o.kind)
	if o.contender != "" {
		what += " by " + o.contender
	}
	if o.request.token != 0 {
		what += fmt.Sprint(" of ", o.request.token)
	}
	if o.lease != 0 {
		what += fmt.Sprint(" for ", o.lease)
	}
	return fmt.Sprintf("%s at server %d, [%v, %s] → %s", what, o.server, time.Duration(o.call), o.returned(), o.reply)
}

func (o operation) returned() string {
	if o.ret == never {
		return "never"
	}
	return time.Duration(o.ret).String()
}

func (r reply) String() string {
	if r.unknown {
		return "unknown"
	}
	return fmt.Sprintf("%s done=%v owner=%q token=%d left=%v", r.status, r.done, r.owner, r.token, r.left)
}

// history collects the operations on one mutex. It is safe for concurrent use.
type history struct {
	mu  sync.Mutex // guards all
	all []operation
}

// add adds an operation. It ignores a read without a reply.
func (h *history) add(o operation) {
	if o.unknown {
		if !o.kind.writes() {
			return
		}
		o.ret = never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	o.id = len(h.all) + 1
	h.all = append(h.all, o)
}

func (h *history) operations() []operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]operation(nil), h.all...)
}
