package chaos

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// began is the zero of the one clock of a run, which is never set.
var began = time.Now()

// instant is a time by that clock, in nanoseconds.
type instant = int64

// never is later than everything: an operation without a reply returns then.
const never instant = math.MaxInt64

func now() instant { return int64(time.Since(began)) }

// after is the instant d after at.
func after(at instant, d time.Duration) instant {
	if at > never-int64(d) {
		return never
	}
	return at + int64(d)
}

// kind is what an operation does.
type kind uint8

const (
	acquire kind = iota // with NOQUEUE, or polling: what a grant needs is the same
	wait                // ACQUIRE … WAIT
	guard
	release
	owner
	check
	breakUp

	// What a request without a reply may have come to besides, as operations of their own: see
	// outcomes.
	renewal
	giveBack
)

var kindNames = [...]string{"acquire", "wait", "guard", "release", "owner", "check", "break", "renewal", "give back"}

func (k kind) String() string { return kindNames[k] }

// writes reports whether the operation can change something.
func (k kind) writes() bool { return k != owner && k != check }

// request is what a client asked for, and when.
type request struct {
	kind      kind
	id        int // names it in its history, from 1
	contender string
	token     uint64        // 0 = none given
	lease     time.Duration // ttl and transition together
	server    int           // who was asked
	roams     bool          // its contender has asked another server for the mutex too
	call      instant
	until     instant // of an outcome that is possible, not told: it came before; 0 = no limit
	// most is the longest lease of a request without a reply of the same contender: of a wait, which is told what
	// is left when it looks up, and by then that may have come and renewed what it was granted.
	most time.Duration
}

// reply is what it was told. A record that names no owner says that the mutex was free.
type reply struct {
	unknown bool   // none came, or one that says so: it may have been done, now or later, or not
	status  string // of ACQUIRE and GUARD
	done    bool   // RELEASE, CHECK or BREAK said 1
	owner   string
	token   uint64
	left    time.Duration // until the lease ends; 0 = not told
	ret     instant
}

// operation is one of them with the other.
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

// history is what happened to one mutex. It is safe for concurrent use.
type history struct {
	mu  sync.Mutex // guards all
	all []operation
}

// add takes an operation that has ended. One that only looked and learnt nothing is of no use.
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
