package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/names"
	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

const (
	// An owner gives up a lease a little before its end, because clocks run at slightly different
	// speeds and timers fire late. This margin is the lease divided by marginShare, at most
	// marginMax.
	marginShare = 100
	marginMax   = 250 * time.Millisecond
	// maxRenewals is how many renewals of a lease may be in progress at the same time.
	maxRenewals = 32
	// After a failed renewal, an owner pauses at most for the rest of its lease divided by
	// renewalPauses, but not less than renewalPauseMin.
	renewalPauses   = 8
	renewalPauseMin = time.Millisecond
	// An owner subscribes to notices when its tenure has lasted for subscribeAfter. It needs them
	// only to learn at once that an administrator has broken its tenure. A short tenure ends soon
	// anyway, so it is not worth a subscription.
	subscribeAfter = 800 * time.Millisecond
)

// instant is a point in time on a clock that runs while the machine is suspended.
type instant struct {
	at        time.Time
	suspended time.Duration // how long the machine was suspended from its boot until at
}

func now() instant { return instant{time.Now(), suspend.Time()} }

func (i instant) since(earlier instant) time.Duration {
	return i.at.Sub(earlier.at) + i.suspended - earlier.suspended
}

// lease is one tenure of this process, and its ownership context. The context ends no later than the
// lease at the server. Its Err reads the clock. So after a freeze of the process it reports the end
// of the lease even if no timer has fired yet.
//
//	newLease ──► lasting ──► lost: expired, or the server says so    (ErrLost)
//	                └──────► released: Unlock, Close, or f returned  (ErrReleased)
//
// The timer calls act when something is due: a renewal, the end of the lease, or the subscription.
type lease struct {
	context.Context
	cancel context.CancelCauseFunc
	c      *Client
	terms  *terms
	of     *contender
	token  uint64
	began  instant
	auto   bool           // nobody waits for work before the release when the tenure is lost or the Client is closed
	hooks  sync.WaitGroup // the hooks Acquired and Lost that have not returned

	mu         sync.Mutex // guards what follows
	from       instant    // when the request for the present lease was sent
	length     time.Duration
	timer      *time.Timer // calls act; nil before the first act
	over       error       // nil = lasts
	due        time.Time   // the next renewal; of a lease without renewal, the next check; zero = none
	noticed    instant     // when check was called last
	flying     int         // renewals without a reply
	tries      int         // renewals since the last one that was answered
	pause      time.Duration
	refused    bool
	subscribed bool
	listener   *listener
	gone       chan struct{} // closed when the release has ended; nil = not begun
	failure    error         // of the release; read it when gone is closed
}

// newLease begins a tenure. from is when the request that acquired the mutex was sent.
func newLease(base context.Context, a *attempt, token uint64, from instant, length time.Duration) *lease {
	l := &lease{
		c: a.c, terms: a.terms, of: a.of, auto: a.auto, token: token, began: now(),
		pause: retryPause,
	}
	l.renewed(from, length)
	l.Context, l.cancel = context.WithCancelCause(base)
	return l
}

// renewed sets the windows. from is when the request for them was sent.
func (l *lease) renewed(from instant, length time.Duration) {
	l.from, l.length, l.due = from, length, time.Time{}
	if !l.terms.manual {
		l.due = from.at.Add(min(l.terms.ttl, length) / 3)
	}
}

// left returns the time until the owner gives the lease up. It is 0 or less if the tenure has ended.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leftLocked()
}

func (l *lease) leftLocked() time.Duration {
	if l.over != nil {
		return 0
	}
	return l.length - min(l.length/marginShare, marginMax) - now().since(l.from)
}

// cause returns why the tenure has ended, ErrLost or ErrReleased; nil = it lasts.
func (l *lease) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Err implements context.Context.
func (l *lease) Err() error {
	if l.left() <= 0 {
		l.lose(Owner{}, true)
	}
	return l.Context.Err()
}

// Value implements context.Context.
func (l *lease) Value(key any) any {
	if key == (tokenKey{}) {
		return l.token
	}
	return l.Context.Value(key)
}

type tokenKey struct{}

// Token returns the fencing token of the context of Do, Lead, Every or Lock.Context, or of a context
// derived from one. It returns 0 for any other context.
func Token(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// owner returns the lease as an Owner. While the machine is suspended, the monotonic clock stands
// still, but the lease does not. So owner subtracts how long the machine was suspended since.
func (l *lease) owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.from.at.Add(l.from.suspended - now().suspended)
	return Owner{ID: l.terms.id, Token: l.token, TTLAt: from.Add(min(l.terms.ttl, l.length)), TransitionAt: from.Add(l.length)}
}

// act does what is due, and sets the timer for what is due next.
func (l *lease) act() {
	t := time.Now()
	l.mu.Lock()
	left := l.leftLocked()
	if left <= 0 { // the tenure has ended, the process was frozen, or the server did not reply
		l.mu.Unlock()
		l.lose(Owner{}, true)
		return
	}
	if !l.due.IsZero() && !t.Before(l.due) {
		// The wait is a third of what is left, so that there is time to try again. Each request
		// takes another connection of the pool. So more and more of them pass those that are dead.
		for n := min(1<<min(l.tries, 4), maxRenewals-l.flying); n > 0; n-- {
			l.renewLocked(left)
		}
		l.tries++
		l.due = t.Add(max(min(l.c.timeout, left/3), renewalPauseMin))
	}
	next := left
	if !l.due.IsZero() {
		next = min(next, l.due.Sub(t))
	}
	untilSubscribe := subscribeAfter - t.Sub(l.began.at)
	subscribe := untilSubscribe <= 0 && !l.subscribed
	if subscribe {
		l.subscribed = true
	} else if !l.subscribed {
		next = min(next, untilSubscribe)
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(next, l.act)
	} else {
		l.timer.Reset(next)
	}
	l.mu.Unlock()
	if subscribe {
		l.subscribe()
	}
}

// subscribe subscribes to the notices of the mutex. The first one may come before add returns.
func (l *lease) subscribe() {
	listener := l.c.subscriptions.add(l.notified, names.MutexChannel(l.terms.mutex))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		l.c.subscriptions.remove(listener)
		return
	}
	l.listener = listener
}

// renewLocked sends a renewal on a goroutine of its own.
func (l *lease) renewLocked(left time.Duration) {
	l.flying++
	go func() {
		reply, sent, err := l.ask(left)
		l.mu.Lock()
		l.flying--
		l.mu.Unlock()
		l.answered(reply, err, sent)
	}()
}

// ask sends a renewal. For a lease without renewal, it asks whether the tenure lasts.
func (l *lease) ask(timeout time.Duration) (r reply, sent instant, err error) {
	ctx := context.WithoutCancel(l.Context)
	if !l.terms.manual {
		l.c.report(l.Context, l.terms, Event{Kind: "Asked", Token: l.token}) // not under the lock: a hook may read the lease
		sent = now()
		r, err = l.c.guard(ctx, timeout, l.terms, l.token)
		return r, sent, err
	}
	sent = now()
	holds, err := l.c.check(ctx, timeout, l.terms.mutex, l.token)
	if r.status = statusLost; holds {
		r.status = statusBusy
	}
	return r, sent, err
}

// answered handles the reply to a renewal, or its error. A late reply neither shortens the lease
// nor counts as a failure.
func (l *lease) answered(reply reply, err error, sent instant) {
	l.mu.Lock()
	late := sent.since(l.from) < 0
	switch {
	case l.over != nil, late && err != nil:
		l.mu.Unlock()
		return
	case err == nil && reply.status == statusLost:
		l.mu.Unlock()
		l.c.outage.answered()
		l.lose(ownerOf(reply, time.Now()), false)
		return
	case err != nil:
		if left := l.leftLocked(); !l.due.IsZero() {
			l.due = time.Now().Add(max(renewalPauseMin, min(l.pause, left/renewalPauses)))
		}
		if !errors.Is(err, errNoAnswer) {
			l.tries = 0
		}
		l.pause = min(2*l.pause, retryPauseMax)
		first := !l.refused
		l.refused = l.refused || refused(err)
		l.mu.Unlock()
		l.c.noteFailure(l.terms, err, first)
	default:
		accepted := l.refused
		l.pause, l.tries, l.refused = retryPause, 0, false
		renewed := reply.status != statusBusy
		if renewed && !late {
			l.renewed(sent, min(l.terms.lease(), reply.transition))
		}
		switch {
		case sent.since(l.noticed) < 0: // a notice has come since
			l.due = time.Now()
		case !renewed:
			l.due = time.Time{}
		}
		l.mu.Unlock()
		l.c.outage.answered()
		if accepted {
			l.c.log.Info("the server accepts the contender's requests again", "mutex", l.terms.mutex, "contender", l.terms.id)
		}
		if renewed {
			l.c.report(l.Context, l.terms, Event{Kind: "Renewed", Token: l.token})
		}
	}
	l.act()
}

// renew renews the lease now, and waits for the reply. The error is ErrLost if the tenure has ended.
func (l *lease) renew(ctx context.Context) error {
	_ = l.Err()
	if over := l.cause(); over != nil {
		return over
	}
	if err := l.c.callable(ctx); err != nil {
		return err
	}
	l.c.report(l.Context, l.terms, Event{Kind: "Asked", Token: l.token})
	sent := now()
	reply, err := l.c.guard(ctx, l.c.timeout, l.terms, l.token)
	if err != nil {
		return err
	}
	l.answered(reply, nil, sent)
	return l.cause()
}

// notified handles a notice. The owner asks the server if the notice announces another owner or the
// end of the tenure, or after a new subscription, since it may have missed notices. If the server
// refuses the subscription, the owner only renews as usual.
func (l *lease) notified(n notice) {
	another := !n.subscribed && n.payload != names.AcquiredNotice(l.terms.id)
	if strings.HasPrefix(n.payload, names.ReleasedPrefix) {
		another = n.payload == names.ReleasedPrefix+l.terms.id
	}
	if !another && !n.subscribed || n.channel == "" {
		return
	}
	l.check()
}

// check makes the owner ask the server at once.
func (l *lease) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noticed = now()
	l.due = l.noticed.at
	if l.over == nil && l.timer != nil {
		l.timer.Reset(0)
	}
}

// finish ends the tenure. It returns false if the tenure had ended before.
func (l *lease) finish(cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return false
	}
	l.over = cause
	if errors.Is(cause, ErrLost) {
		l.hooks.Add(1)
	}
	l.cancel(cause)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.c.subscriptions.remove(l.listener)
	return true
}

// lose ends the tenure with ErrLost. expired says that its lease has ended by the clock of this
// process. lose does not wait for log handlers and hooks.
func (l *lease) lose(owner Owner, expired bool) {
	if !l.finish(ErrLost) {
		return
	}
	go func() { // a log handler or a hook may hang
		l.c.report(l.Context, l.terms, Event{Kind: "Lost", Token: l.token, Took: now().since(l.began), Owner: owner, Expired: expired, Err: ErrLost})
		l.hooks.Done()
		l.c.log.Warn("mutex lost", "mutex", l.terms.mutex, "contender", l.terms.id, "token", l.token, "owner", owner.ID)
		if l.auto {
			l.release()
		}
	}()
}

// abort ends the tenure because the Client is closed. The work releases the mutex when it returns.
func (l *lease) abort() {
	if l.auto {
		l.release()
	} else {
		l.end()
	}
}

// end ends the tenure with ErrReleased, unless it was lost.
func (l *lease) end() {
	_ = l.Err()
	l.finish(ErrReleased)
}

// release ends the tenure and releases the mutex in the background. Only the first call has an effect.
func (l *lease) release() {
	if l.beginRelease() {
		go l.releaseAtServer(context.WithoutCancel(l.Context))
	}
}

// beginRelease ends the tenure. It returns true for the first call, which must send the RELEASE.
// gone is closed when the release has ended, see failure.
func (l *lease) beginRelease() (first bool) {
	l.end()
	l.mu.Lock()
	if first = l.gone == nil; first {
		l.gone = make(chan struct{})
	}
	l.mu.Unlock()
	if first {
		l.c.contenders.setLeaving(l.of)
	}
	return first
}

// releaseAtServer sends RELEASE. If the server does not reply, it goes on in the background, until the
// server confirms or refuses it, or the lease has ended.
func (l *lease) releaseAtServer(ctx context.Context) {
	l.hooks.Wait() // before the next hook
	released, err := l.c.release(ctx, l.terms, l.token, via{}, false)
	if err == nil || isFinal(err) {
		l.wasReleased(released, err)
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		time.Sleep(retryPause)
		// A renewal without a reply may have renewed the lease shortly before.
		err := l.c.until(l.terms.lease(), func() error {
			_, err := l.c.release(ctx, l.terms, l.token, via{}, true)
			return err
		})
		l.wasReleased(true, err) // perhaps by the first RELEASE
	}()
}

// wasReleased notes the end of the release.
func (l *lease) wasReleased(released bool, err error) {
	switch {
	case errors.Is(l.cause(), ErrLost): // the hook Lost was called, and nobody needs the release
		err = nil
	case err == nil && !released: // the server ended the tenure before
		err = ErrLost
		l.c.report(l.Context, l.terms, Event{Kind: "Lost", Token: l.token, Took: now().since(l.began), Err: ErrLost})
	default:
		l.c.report(l.Context, l.terms, Event{Kind: "Released", Token: l.token, Took: now().since(l.began), Err: err})
	}
	l.failure = err
	l.c.contenders.remove(l.of, err)
	close(l.gone)
}

// until repeats a release until the server replies, or d has passed.
func (c *Client) until(d time.Duration, release func() error) error {
	began := now()
	for pause := retryPause; ; pause = min(2*pause, time.Second) {
		err := release()
		if err == nil || isFinal(err) || now().since(began) > d {
			return err
		}
		time.Sleep(pause)
	}
}
