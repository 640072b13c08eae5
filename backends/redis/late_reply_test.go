package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests run a script and apply its reply only after later requests.

func TestOutcomeHasWindowsOfTheGrantedTicket(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Second, newWaiter())
	// The same contender waits by a second request, which never reaches Redis.
	second, _ := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	release(t, b, "m", "a")
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status == simba.StatusAcquired && o.TTL > time.Second {
		t.Errorf("End of the second ticket: %+v, %v; want the windows of the granted ticket; Redis has %+v",
			o, err, owner(t, b, "m"))
	}
}

func TestHistoryWaitsForLateReply(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	acquire(t, b, "m", "c", time.Minute, nil)
	time.AfterFunc(reorderWindow/5, func() { b.applyReply("m", late) })
	events, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: "m"})
	if err != nil || len(events) != 3 || events[1].Owner != "a" || events[2].Owner != "c" {
		t.Errorf("HISTORY: %+v %v; want the end of a's tenure, then the beginning of c's", events, err)
	}
}

// No contender waits at this server, but another server may have a waiter. So this server must keep
// the reconciliation that the owner's request scheduled.
func TestOlderReplyPutsOffNoReconciliation(t *testing.T) {
	b := serve(t, "redis://"+stores.Redis(t).Addr, noNotices{})
	// apply applies a reply that Redis sent at the time now, and returns when the mutex is due.
	apply := func(status string, now int64, due time.Duration) time.Duration {
		at := now + due.Milliseconds()
		if due == 0 {
			at = 0
		}
		b.applyReply("m", &reply{status: status, now: now, due: at, sent: time.Now()})
		b.schedule.mu.Lock()
		defer b.schedule.mu.Unlock()
		if x := b.schedule.byMutex["m"]; x != nil {
			return time.Until(x.at)
		}
		return 0
	}
	apply("renewed", 4, time.Minute)
	if d := apply("renewed", 3, time.Hour); d == 0 || d > time.Minute+time.Second {
		t.Errorf("after an older reply the next reconciliation is in %v, want at most a minute", d)
	}
	if d := apply("released", 2, 0); d == 0 {
		t.Error("an older release cancelled the reconciliation")
	}
	apply("acquired", 1, time.Minute)
	if d := apply("renewed", 5, 24*time.Hour); d < 23*time.Hour {
		t.Errorf("after a renewal for a day the next reconciliation is in %v, want about a day", d)
	}
	acquire(t, b, "m", "a", time.Minute, nil)
	waits(t, b, "m", "c")
	awaitIdle(t, b, "m", "c")
	if d := apply("released", time.Now().Add(time.Hour).UnixMilli(), 0); d == 0 || d > reconcileInterval {
		t.Errorf("while c waits, the next reconciliation is in %v; want one within reconcileInterval", d)
	}
}

func TestLateReportHandsOffNoAcknowledgedGrant(t *testing.T) {
	for name, arrive := range map[string]func(*Backend, simba.Ticket, simba.Outcome, *reply){
		"reply and message": func(b *Backend, ticket simba.Ticket, o simba.Outcome, late *reply) {
			b.applyReply("m", late)
			b.confirmGrant(t.Context(), "m", grant{contender: "c", token: o.Token, ticket: waitOf(ticket.(waitTicket).Ticket).ticket})
		},
		// The server stood still between a reply and its handling, for longer than forget waits.
		"reply after the ticket is forgotten": func(b *Backend, ticket simba.Ticket, _ simba.Outcome, late *reply) {
			b.forget(ticket.(waitTicket).Ticket, false)
			late.sent = late.sent.Add(-2 * b.timeout)
			b.applyReply("m", late)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, ticket := blocked(t)
			late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
			o, err := ticket.End(simba.EndTimeout)
			if err != nil || o.Status != simba.StatusAcquired {
				t.Fatalf("End of the waiter: %+v %v; want acquired", o, err)
			}
			arrive(b, ticket, o, late)
			mustStay(t, b, "m", "c")
		})
	}
}

// Redis runs the ACQUIRE of a ticket after the server has given the ticket up.
func TestGrantToUnknownTicketIsHandedOff(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	other := serve(t, "redis://"+s.Addr, noNotices{})
	for _, releasing := range []*Backend{b, other} {
		acquire(t, b, "m", "a", time.Minute, nil)
		runScript(t, b, "m", acquireScript, "c", int64(60_000), int64(0), "wait", "", "77")
		release(t, releasing, "m", "a")
		until(t, "nobody owns the mutex", func() bool { return owner(t, other, "m").Owner == "" })
	}
}

func TestLateReplyOfEarlierWaitEndsNoLaterWait(t *testing.T) {
	b, _, first := blocked(t)
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	if o, err := first.End(simba.EndTimeout); err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("End of the earlier wait: %+v %v; want acquired", o, err)
	}
	release(t, b, "m", "c")
	acquire(t, b, "m", "a", time.Minute, nil)
	w, second := waits(t, b, "m", "c")
	awaitIdle(t, b, "m", "c")
	b.applyReply("m", late)
	if t2 := b.Waiters.Find("m", "c"); t2 != second.(waitTicket).Ticket {
		t.Fatalf("after the late reply c waits by %v, want the later ticket %v", t2, second)
	}
	release(t, b, "m", "a")
	granted(t, w, second)
}

func TestWaiterIsGrantedThoughItsEarlierRequestRanLater(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	first, _ := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	w, second := waits(t, b, "m", "c")
	awaitIdle(t, b, "m", "c")
	runScript(t, b, "m", acquireScript, "c", int64(60_000), int64(0), "wait", "", waitOf(first).ticket)
	release(t, b, "m", "a")
	w.await(t)
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("the end of the later wait: %+v %v; want acquired", o, err)
	}
	if o.TTL < time.Minute-reconcileInterval+time.Second {
		t.Errorf("the TTL window has %v left: only the regular reconciliation found the grant", o.TTL)
	}
}

// The second request of c fails after a third one has replaced it, and the third one fails too.
func TestGrantOfEarlierWaitIsHandedOffIfReplacedRequestFails(t *testing.T) {
	s := stores.Redis(t)
	b := openSoon(t, Options{URL: "redis://" + s.Addr, Options: proxy.Options{Notices: newListener(), Timeout: time.Second}})
	defer b.Close()
	acquire(t, b, "m", "a", time.Minute, nil)
	paused, replaced := make(chan struct{}), make(chan struct{})
	acquire(t, b, "m", "c", time.Minute, wakeFunc(func() {
		release(t, b, "m", "a")
		s.Pause()
		close(paused)
	}))
	awaitIdle(t, b, "m", "c")
	request := func(w simba.Waiter, sent time.Duration) (simba.Outcome, simba.Ticket, error) {
		ctx, cancel := context.WithTimeout(t.Context(), sent)
		defer cancel()
		return b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: w})
	}
	var second simba.Outcome
	var ticket simba.Ticket
	var others sync.WaitGroup
	others.Go(func() { second, ticket, _ = request(wakeFunc(func() { close(replaced) }), 600*time.Millisecond) })
	<-paused
	others.Go(func() {
		if _, _, err := request(newWaiter(), 400*time.Millisecond); err == nil {
			t.Error("ACQUIRE … WAIT at a stopped Redis succeeds")
		}
	})
	<-replaced
	others.Wait()
	if second.Status != simba.StatusWaiting {
		t.Fatalf("the second request, which was replaced: %+v; want waiting", second)
	}
	_, _ = ticket.End(simba.EndWoken)
	s.Resume()
	until(t, "nobody owns the mutex", func() bool {
		o, _, err := b.Owner(t.Context(), "m")
		return err == nil && o.Owner == ""
	})
}

func TestReplyThatTheMutexIsOwnedWinsOverMessages(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, wakeFunc(func() {
		release(t, b, "m", "c") // also ends the later wait
		release(t, b, "m", "a")
	}))
	awaitIdle(t, b, "m", "c")
	o, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	if o.Status == simba.StatusWaiting {
		o, _ = ticket.End(simba.EndWoken)
	}
	if o.Status != simba.StatusAcquired {
		t.Errorf("the later wait: %+v; want acquired; Redis has %+v", o, owner(t, b, "m"))
	}
}

func TestReplyGrantsNoWaitThatBeganLater(t *testing.T) {
	s := stores.Redis(t)
	e := &hook{listener: newListener()}
	b := serve(t, "redis://"+s.Addr, e)
	var second *proxy.Ticket
	w := newWaiter()
	e.onFirst = func() { // while the reply is being applied
		runScript(t, b, "m", releaseScript, "c", "0", "", "")
		runScript(t, b, "m", acquireScript, "a", int64(60_000), int64(0), "noqueue", "", "")
		second, _ = b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: w})
		runScript(t, b, "m", acquireScript, "c", int64(60_000), int64(0), "wait", "", waitOf(second).ticket)
	}
	acquire(t, b, "m", "c", time.Minute, nil)
	release(t, b, "m", "a")
	granted(t, w, second)
}

func TestAbandonedRequestDoesNothingLater(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for name, request := range map[string]func(ctx context.Context) error{
		"release": func(ctx context.Context) error {
			_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		},
		"break": func(ctx context.Context) error {
			_, _, err := b.Break(ctx, "m", "")
			return err
		},
	} {
		must(t, request(t.Context())) // from now on Redis knows the script
		o := eventually(t, b, "m", "a")
		ran := commandCalls(t, s, "evalsha")
		s.Pause()
		lost := (*simba.UnavailableError)(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		if err := request(ctx); !errors.As(err, &lost) {
			t.Errorf("%s at a stopped Redis: %v; want an UnavailableError", name, err)
		}
		cancel()
		s.Resume()
		until(t, "the request has reached redis", func() bool { return commandCalls(t, s, "evalsha") > ran })
		if now := eventually(t, b, "m", "a"); now.Status != simba.StatusRenewed || now.Token != o.Token {
			t.Errorf("%s ran after its deadline: the tenure was %+v, then ACQUIRE returned %+v", name, o, now)
		}
	}
}

// commandCalls returns how often Redis has run a command, also in scripts.
func commandCalls(t *testing.T, s *stores.Server, command string) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	text, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(text)
	return n
}

func TestDeadlineAtNodeIsNotLaterThanDeadline(t *testing.T) {
	p := &pipeline{clock: proxy.NewClock()}
	at := time.Now()
	if got := p.deadlineAtNode(at); got != noDeadline {
		t.Errorf("the deadline before any reply is %s; want none", got)
	}
	p.clock.Learn(1000, at.Add(-time.Second), at) // Redis' clock showed 1000 at some time in the last second
	if got := p.deadlineAtNode(at.Add(300 * time.Millisecond)); got != "1299" {
		t.Errorf("the deadline in 300 ms is %s; want 1299, which is not too late", got)
	}
}
