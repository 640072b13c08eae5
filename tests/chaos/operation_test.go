package chaos

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// began is the zero of the test's clock. Nothing sets this clock.
var began = time.Now()

// instant is a time on the test's clock, in nanoseconds since began.
type instant = int64

// never is later than all other instants. An operation without a reply returns at never.
const never instant = math.MaxInt64

func now() instant { return int64(time.Since(began)) }

// after returns the instant d after at.
func after(at instant, d time.Duration) instant {
	if at > never-int64(d) {
		return never
	}
	return at + int64(d)
}

// kind is what an operation does.
type kind uint8

const (
	acquire kind = iota // with NOQUEUE or by polling: both get the mutex under the same conditions
	wait                // ACQUIRE … WAIT
	guard
	release
	owner
	check
	breakUp

	// The kinds below are further possible effects of one request. outcomes adds them as operations
	// of their own.
	renewal
	giveBack
)

var kindNames = [...]string{"acquire", "wait", "guard", "release", "owner", "check", "break", "renewal", "give back"}

func (k kind) String() string { return kindNames[k] }

// writes reports whether the operation can change something.
func (k kind) writes() bool { return k != owner && k != check }

// request is a client's request and the instant of its sending.
type request struct {
	kind      kind
	id        int // its number in its history, from 1
	contender string
	token     uint64        // 0 = none given
	lease     time.Duration // both windows together
	server    int           // the server that received it
	roams     bool          // the contender may have a queue entry at another server
	call      instant
	until     instant // the latest instant at which a possible effect may happen; 0 = no limit
	// most is the longest lease among the requests of the same contender without a reply. Such a
	// request may renew the lease that a wait was granted, before the reply to the wait.
	most time.Duration
}

// reply is the reply to a request. Without an owner, the mutex was free.
type reply struct {
	// There is no reply, or one that leaves the outcome open. The request may take effect now,
	// later, or never.
	unknown bool
	status  string // of ACQUIRE and GUARD
	done    bool   // RELEASE, CHECK or BREAK said 1
	owner   string
	token   uint64
	left    time.Duration // until the lease ends; 0 = not in the reply
	ret     instant
}

// operation is a request with its reply.
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

// history has the operations of one mutex. It is safe for concurrent use.
type history struct {
	mu  sync.Mutex // guards all
	all []operation
}

// add adds an operation that has ended. It ignores a read without a reply.
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
