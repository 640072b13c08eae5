package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

// The names of two waiters, each as short or as long as possible.
var (
	theWaiter   = strings.Repeat("w", minWaiterName)
	otherWaiter = strings.Repeat("x", maxWaiterName)
)

// acquireVia returns an ACQUIRE of the mutex m that waits via theWaiter.
func acquireVia(contender string, n int, wait string) string {
	return fmt.Sprintf("SIMBA.ACQUIRE m %s 10000 WAIT %s VIA %s REQUEST %d", contender, wait, theWaiter, n)
}

func releaseVia(contender string, n int) string {
	return fmt.Sprintf("SIMBA.RELEASE m %s VIA %s REQUEST %d", contender, theWaiter, n)
}

func next(ms int) string { return fmt.Sprintf("SIMBA.NEXT %s %d", theWaiter, ms) }

// values returns the values of a record or of a list of records by name. Of several values with one
// name it keeps the last.
func values(reply string) map[string]string {
	v := make(map[string]string)
	name := ""
	for line := range strings.SplitSeq(reply, "\r\n") {
		switch {
		case line == "" && name == "", line != "" && strings.Contains("*%$", line[:1]):
		case name == "":
			name = line
		default:
			v[name], name = strings.TrimPrefix(line, ":"), ""
		}
	}
	return v
}

// outcomes returns the number and the status or error of each outcome in a reply of SIMBA.NEXT.
func outcomes(reply string) []string {
	var list []string
	for _, record := range strings.Split(reply, bulk("request"))[1:] {
		v := values(bulk("request") + record)
		list = append(list, v["request"]+" "+v["status"]+v["error"])
	}
	return list
}

func (p *peer) wantNext(ms int, want ...string) {
	p.t.Helper()
	if got := outcomes(p.do(next(ms))); !slices.Equal(got, want) {
		p.t.Errorf("SIMBA.NEXT returned the outcomes %q, want %q", got, want)
	}
}

func (p *peer) wantStatus(command, want string) {
	p.t.Helper()
	if got := values(p.do(command))["status"]; got != want {
		p.t.Errorf("%s replied the status %q, want %q", command, got, want)
	}
}

// queue returns the contenders in the queue of m and the kinds of their waits.
func (p *peer) queue() string {
	p.t.Helper()
	var list []string
	for _, record := range strings.Split(p.do("SIMBA.QUEUE m"), bulk("contender"))[1:] {
		v := values(bulk("contender") + record)
		list = append(list, v["contender"]+" "+v["kind"])
	}
	return strings.Join(list, ", ")
}

// withWaiter calls test with three connections to a server that has the engine embedded: two for
// requests, and one that has bound theWaiter. The contender o owns the mutex m.
func withWaiter(t *testing.T, test func(t *testing.T, s *site, p, q, n *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := embeddedSite(t, Config{})
		p, q, n := s.dial(), s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus("SIMBA.ACQUIRE m o 3600000", "acquired")
		test(t, s, p, q, n)
	})
}

func embeddedSite(t *testing.T, cfg Config) *site {
	t.Helper()
	e, err := engine.New(engine.Config{Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second}, engine.Memory(), engine.Recovery{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	cfg.Backend = e
	return newSite(t, cfg)
}

func TestNextReturnsTheOutcomeOfAWait(t *testing.T) {
	record := func(proto int, fields ...string) string {
		head := fmt.Sprintf("*%d\r\n", 2*len(fields))
		if proto == 3 {
			head = fmt.Sprintf("%%%d\r\n", len(fields))
		}
		for _, f := range fields {
			name, value, _ := strings.Cut(f, "=")
			if head += bulk(name); strings.HasPrefix(value, ":") {
				head += value + "\r\n"
			} else {
				head += bulk(value)
			}
		}
		return head
	}
	for _, proto := range []int{2, 3} {
		withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
			p.do(fmt.Sprint("HELLO ", proto))
			n.do(fmt.Sprint("HELLO ", proto))
			p.expect("SIMBA.ACQUIRE m c 10000 TRANSITION 500 WAIT 0 VIA "+theWaiter+" REQUEST 9223372036854775807",
				record(proto, "request=:9223372036854775807", "status=queued", "owner=o", "token=:1", "ttl=:3600000", "transition=:3600000", "position=:1"))
			n.send(next(2000))
			synctest.Wait()
			time.Sleep(1500 * time.Millisecond)
			q.expect("SIMBA.RELEASE m o", ":1\r\n")
			want := "*1\r\n" + record(proto, "request=:9223372036854775807", "mutex=m", "status=acquired", "owner=c", "token=:2", "ttl=:10000", "transition=:10500", "position=:0")
			if got := n.reply(); got != want {
				t.Errorf("in RESP%d SIMBA.NEXT replied\n%q, want\n%q", proto, got, want)
			}
		})
	}
}

func TestASilentNextReturnsAnEmptyList(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		began := time.Now()
		n.expect(next(2000), "*0\r\n")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("SIMBA.NEXT with 2000 ms took %v", took)
		}
	})
}

func TestAReplyAtOnceHasNoOutcome(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.do("SIMBA.RELEASE m o")
		p.wantStatus(acquireVia("c", 1, "0"), "acquired")
		p.wantStatus(acquireVia("c", 2, "0"), "renewed")
		n.wantNext(1000)
	})
}

// Outcomes wait for the next SIMBA.NEXT, but a wait never lasts longer than its limit.
func TestAWaitTimesOutWithoutANext(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "1000"), "queued")
		p.wantStatus(acquireVia("d", 2, "2000"), "queued")
		time.Sleep(1000 * time.Millisecond)
		synctest.Wait()
		if got := p.queue(); got != "d blocked" {
			t.Errorf("after the limit of one of two waits the queue has %q, want d alone", got)
		}
		time.Sleep(1000 * time.Millisecond)
		synctest.Wait()
		n.wantNext(1000, "1 timeout", "2 timeout")
	})
}

func TestAReplacedWaitEndsUnderItsNumber(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		p.wantStatus(acquireVia("c", 2, "0"), "queued")
		n.wantNext(1000, "1 queued")
		q.expect("SIMBA.RELEASE m o", ":1\r\n")
		n.wantNext(1000, "2 acquired")
	})
}

func TestARequestNumberIsNew(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		p.expect(acquireVia("d", 1, "0"), failed(string(errOldRequest)))
		if got := p.queue(); got != "c blocked" {
			t.Errorf("the queue has %q, want c alone", got)
		}
	})
}

func TestAGrantThatExpiresBeforeNextIsATimeout(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		q.do("SIMBA.RELEASE m o")
		synctest.Wait()
		time.Sleep(4 * time.Second)
		if v := values(n.do(next(0))); v["status"] != "acquired" || v["ttl"] != "6000" {
			t.Errorf("after 4 s of 10 SIMBA.NEXT returned %v, want acquired with 6 s left", v)
		}
		q.do("SIMBA.RELEASE m c")
		q.do("SIMBA.ACQUIRE m o 60000")
		p.wantStatus("SIMBA.ACQUIRE m c 3000 WAIT 0 VIA "+theWaiter+" REQUEST 2", "queued")
		q.do("SIMBA.RELEASE m o")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		n.wantNext(0, "2 timeout")
	})
}

// A frozen client sends no NEXT. Its grants would be idle, each for a lease.
func TestAWaiterThatSendsNoNextIsClosed(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		time.Sleep(time.Minute)
		n.wantNext(0) // without waits it may be silent
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		other := s.dial()
		other.wantStatus("SIMBA.ACQUIRE m d 10000", "queued")
		time.Sleep(maxSilence - time.Millisecond)
		if got := p.queue(); got != "c blocked, d polling" {
			t.Errorf("before %v of silence the queue is %s, want c blocked, d polling", maxSilence, got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := p.queue(); got != "c polling, d polling" {
			t.Errorf("after %v of silence the queue is %s, want c polling, d polling", maxSilence, got)
		}
		if _, err := n.nc.Read(make([]byte, 1)); err == nil {
			t.Error("the connection of the silent waiter is open")
		}
	})
}

func TestWithoutAWaiterTheContenderPolls(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		reply := p.do("SIMBA.ACQUIRE m c 1000 WAIT 0 VIA " + otherWaiter + " REQUEST 1")
		if v := values(reply); v["status"] != "queued" || strings.Contains(reply, "request") {
			t.Errorf("via an unknown waiter SIMBA.ACQUIRE replied %v, want queued without a number", v)
		}
		if got := p.queue(); got != "c polling" {
			t.Errorf("the queue has %q, want c polling", got)
		}
	})
}

func TestAWaiterBelongsToOneConnection(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		p.expect(next(0), failed(string(errOneWaiter)))
		n.expect("SIMBA.NEXT "+otherWaiter+" 0", failed(string(errOneWaiter)))
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		n.expect("RESET", "+RESET\r\n")
		if got := p.queue(); got != "c polling" {
			t.Errorf("after the waiter's RESET the queue has %q, want c polling", got)
		}
		p.wantNext(0) // the name is free again
		p.nc.Close()
		synctest.Wait()
		q.wantNext(0)
	})
}

func TestAWaiterBelongsToOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := embeddedSite(t, Config{Users: newUsersFile(t, team...).open()})
		boss, n := s.as("boss"), s.as("boss")
		billing := s.as("billing")
		n.wantNext(0)
		boss.wantStatus("SIMBA.ACQUIRE billing:1 boss 60000", "acquired")
		via := " 1000 WAIT 0 VIA " + theWaiter + " REQUEST "
		if reply := billing.do("SIMBA.ACQUIRE billing:1 billing" + via + "1"); values(reply)["status"] != "queued" || strings.Contains(reply, "request") {
			t.Errorf("via the waiter of another user SIMBA.ACQUIRE replied %q, want queued without a number", reply)
		}
		billing.expect(next(0), failed(string(errOneWaiter)))
		boss.wantStatus("SIMBA.ACQUIRE billing:1 boss:2"+via+"2", "queued")
		s.dial().expect("SIMBA.RELEASE billing:1 boss:2 VIA "+theWaiter+" REQUEST 2", ":0\r\n")
		if reply := boss.do("SIMBA.QUEUE billing:1"); !strings.Contains(reply, "blocked") {
			t.Errorf("another user has canceled the wait: %q", reply)
		}
		n.expect("AUTH billing pw", ok)
		if reply := boss.do("SIMBA.QUEUE billing:1"); strings.Contains(reply, "blocked") {
			t.Errorf("after AUTH on the waiter's connection its wait goes on: %q", reply)
		}
	})
}

func TestReleaseEndsTheWaitOfARequest(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		for _, foreign := range []string{releaseVia("c", 2), releaseVia("d", 1), strings.Replace(releaseVia("c", 1), " m ", " x ", 1),
			strings.Replace(releaseVia("c", 1), theWaiter, otherWaiter, 1)} {
			if p.expect(foreign, ":0\r\n"); p.queue() != "c blocked" {
				t.Errorf("%s has ended the wait of request 1 of c", foreign)
			}
		}
		p.expect(releaseVia("c", 1), ":0\r\n")
		if got := p.queue(); got != "" {
			t.Errorf("after RELEASE the queue has %q, want nobody", got)
		}
		n.wantNext(1000) // no outcome
	})
}

func TestReleaseEndsTheTenureOfARequest(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		owner := func() string { return values(p.do("SIMBA.OWNER m"))["owner"] }
		granted := func(n int) {
			p.wantStatus(acquireVia("c", n, "0"), "queued")
			q.do("SIMBA.RELEASE m o")
			synctest.Wait()
		}
		ended := func(n int) {
			t.Helper()
			if p.expect(releaseVia("c", n), ":1\r\n"); owner() != "" {
				t.Errorf("RELEASE has not ended the tenure of request %d", n)
			}
			p.wantStatus("SIMBA.ACQUIRE m o 60000", "acquired")
		}
		granted(1)
		ended(1) // before NEXT
		n.wantNext(1000)
		granted(2)
		n.wantNext(1000, "2 acquired")
		ended(2) // after NEXT
		q.do("SIMBA.RELEASE m o")
		p.wantStatus(acquireVia("c", 3, "0"), "acquired")
		ended(3) // of a request that did not wait

		// A late RELEASE ends neither the tenure nor the wait of a later request.
		granted(4)
		n.wantNext(1000, "4 acquired")
		for old := range 3 {
			if p.expect(releaseVia("c", old+1), ":0\r\n"); owner() != "c" {
				t.Errorf("RELEASE of request %d has ended the tenure of request 4", old+1)
			}
		}
		p.do("SIMBA.BREAK m")
		p.do("SIMBA.ACQUIRE m o 60000")
		p.wantStatus(acquireVia("c", 5, "0"), "queued")
		if p.expect(releaseVia("c", 4), ":0\r\n"); p.queue() != "c blocked" {
			t.Error("RELEASE of request 4 has ended the wait of request 5")
		}
	})
}

// A client that gives up request 1 and locks again finds its tenure by request 2. The RELEASE of
// request 1 may arrive after that.
func TestALateReleaseSparesATenureThatALaterRequestHasRenewed(t *testing.T) {
	granted := func(p, q *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		q.do("SIMBA.RELEASE m o")
		synctest.Wait()
	}
	for how, brings := range map[string]func(p, q, n *peer){
		"before NEXT": func(p, q, _ *peer) { granted(p, q) },
		"after NEXT": func(p, q, n *peer) {
			granted(p, q)
			n.wantNext(1000, "1 acquired")
		},
		"at once": func(p, q, _ *peer) {
			q.do("SIMBA.RELEASE m o")
			p.wantStatus(acquireVia("c", 1, "0"), "acquired")
		},
	} {
		for _, again := range []string{
			acquireVia("c", 2, "0"), "SIMBA.ACQUIRE m c 10000 NOQUEUE",
			"SIMBA.ACQUIRE m c 10000 WAIT 0 VIA " + otherWaiter + " REQUEST 2", // no such waiter
		} {
			withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
				brings(p, q, n)
				q.wantStatus(again, "renewed")
				p.do(releaseVia("c", 1))
				if v := values(p.do("SIMBA.OWNER m")); v["owner"] != "c" {
					t.Errorf("granted %s and renewed by %s: RELEASE of request 1 has ended the tenure: %v", how, again, v)
				}
			})
		}
	}
}

func TestARequestWaitsForTheReleaseOfAnEarlierOne(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, q, n := s.dial(), s.dial(), s.dial()
		n.wantNext(0)
		free := false
		ticket.acquire = func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			status := simba.StatusRenewed
			if free {
				status = simba.StatusAcquired
			}
			return simba.Outcome{Status: status, Owner: "c", Token: 7, TTL: time.Second, Transition: time.Second}, nil, nil
		}
		free = true
		p.wantStatus(acquireVia("c", 1, "0"), "acquired")
		free = false
		ticket.release = func(simba.ReleaseRequest) (bool, simba.Seq, error) {
			time.Sleep(time.Second)
			free = true
			return true, 0, nil
		}
		p.send(releaseVia("c", 1))
		synctest.Wait()
		q.wantStatus(acquireVia("c", 2, "0"), "acquired")
		if got := p.reply(); got != ":1\r\n" {
			t.Errorf("RELEASE replied %q, want 1", got)
		}
	})
}

func TestAWaiterRemembersItsLastTenures(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, _, n *peer) {
		on := func(command string, i int) string { return strings.Replace(command, " m ", fmt.Sprintf(" m%d ", i), 1) }
		for i := range maxBrought + 1 {
			p.wantStatus(on(acquireVia("c", i+1, "0"), i+1), "acquired")
		}
		found, _ := s.x.waiters.Load(theWaiter)
		if left := len(found.(*waiter).waits); left != 0 {
			t.Errorf("%d waits are kept for requests that have ended", left)
		}
		p.expect(on(releaseVia("c", 1), 1), ":0\r\n")
		for _, i := range []int{2, maxBrought + 1} {
			p.expect(on(releaseVia("c", i), i), ":1\r\n")
		}
	})
}

func TestTheWaitsOfAClosedConnectionBecomePolling(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "60000"), "queued")
		p.wantStatus("SIMBA.ACQUIRE m d 1000", "queued")
		n.nc.Close()
		synctest.Wait()
		if got := p.queue(); got != "c polling, d polling" {
			t.Errorf("after the connection has closed the queue has %q, want c and d in their order", got)
		}
		if left := s.x.store.waits.Load(); left != 0 {
			t.Errorf("%d waits are left", left)
		}
		if _, left := s.x.waiters.Load(theWaiter); left {
			t.Error("the waiter is left")
		}
		q.wantNext(0)
		q.wantStatus(acquireVia("c", 1, "60000"), "queued") // keeps its place
		if got := p.queue(); got != "c blocked, d polling" {
			t.Errorf("after the client has asked again the queue has %q", got)
		}
	})
}

func TestAGrantThatWasNotSentIsHandedOff(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		q.wantStatus(acquireVia("c", 1, "0"), "queued")
		p.send("SIMBA.ACQUIRE m d 10000 WAIT 0")
		synctest.Wait()
		q.do("SIMBA.RELEASE m o")
		synctest.Wait() // the outcome waits for a NEXT
		n.nc.Close()
		if got := status(p.reply()); got != "acquired" {
			t.Errorf("after the waiter's connection has closed the next waiter got %q, want acquired", got)
		}
	})
}

// cutShort is a connection that breaks in the middle of the write that has the text.
type cutShort struct {
	net.Conn
	text string
}

func (c *cutShort) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), c.text) {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:len(b)-1])
	c.Conn.Close()
	return n, errors.New("broken pipe")
}

// If the last byte of an outcome does not get to the network, its grants are handed off. An earlier
// grant stays.
func TestAGrantThatWasNotWhollySentIsHandedOff(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		n.nc.Close()
		synctest.Wait()
		near, far := net.Pipe()
		s.running.Go(func() { s.server.ServeConn(&cutShort{far, "second"}) })
		n = newPeer(t, near)
		n.wantNext(0)
		via := fmt.Sprintf(" c 60000 WAIT 0 VIA %s REQUEST ", theWaiter)
		q.do("SIMBA.ACQUIRE second o 60000")
		for i, mutex := range []string{"m", "second"} {
			q.wantStatus(fmt.Sprint("SIMBA.ACQUIRE ", mutex, via, i+1), "queued")
		}
		q.do("SIMBA.RELEASE m o")
		n.wantNext(1000, "1 acquired")
		p.send("SIMBA.ACQUIRE second d 10000 WAIT 0")
		synctest.Wait()
		n.send(next(1000))
		synctest.Wait()
		go io.Copy(io.Discard, near)
		q.do("SIMBA.RELEASE second o")
		if got := status(p.reply()); got != "acquired" {
			t.Errorf("after half of the outcome was sent the next waiter got %q, want acquired", got)
		}
		if got := values(q.do("SIMBA.OWNER m"))["owner"]; got != "c" {
			t.Errorf("the mutex of the earlier outcome has the owner %q, want c", got)
		}
	})
}

func TestARequestInFlightAtTheEndOfTheWaiterPolls(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		acquire := ticket.acquire
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			n.nc.Close()
			time.Sleep(time.Second) // until endWaiter has ended
			ticket.grant()
			return acquire(r)
		}
		if reply := p.do(acquireVia("c", 1, "0")); strings.Contains(reply, "request") {
			t.Errorf("via a waiter that has ended SIMBA.ACQUIRE replied %q, want no number", reply)
		}
		wantEnd(t, ticket, simba.EndGone)
	})
}

func TestChangedRulesEndTheWaitsOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newUsersFile(t, team...)
		s := embeddedSite(t, Config{Users: file.open()})
		boss, p, n := s.as("boss"), s.as("billing"), s.as("billing")
		n.wantNext(0)
		for i, mutex := range []string{"billing:1", "billing:2"} {
			boss.wantStatus("SIMBA.ACQUIRE "+mutex+" boss 60000", "acquired")
			p.wantStatus(fmt.Sprintf("SIMBA.ACQUIRE %s billing 1000 WAIT 0 VIA %s REQUEST %d", mutex, theWaiter, i+1), "queued")
		}
		n.send(next(1000))
		synctest.Wait()
		file.write(team[0], team[3], "user billing on >pw ~billing:2 +@all")
		changed, err := s.x.gate.users.Load()
		if err != nil {
			t.Fatal(err)
		}
		s.x.rejudge(nil, changed)
		if got, want := outcomes(n.reply()), []string{"1 " + strings.TrimSuffix(noKey[1:], "\r\n")}; !slices.Equal(got, want) {
			t.Errorf("after the change of the rules SIMBA.NEXT returned %q, want %q", got, want)
		}
		boss.do("SIMBA.RELEASE billing:2 boss")
		n.wantNext(1000, "2 acquired")
	})
}

func TestAWaitEndsWithTheRightToNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newUsersFile(t, team...)
		s := embeddedSite(t, Config{Users: file.open()})
		boss, p, n := s.as("boss"), s.as("billing"), s.as("billing")
		n.wantNext(0)
		boss.wantStatus("SIMBA.ACQUIRE billing:1 boss 60000", "acquired")
		p.wantStatus("SIMBA.ACQUIRE billing:1 billing 1000 WAIT 0 VIA "+theWaiter+" REQUEST 1", "queued")
		n.send(next(1000))
		synctest.Wait()
		file.write(team[0], team[3], "user billing on >pw ~billing:* +@all -simba.next")
		changed, err := s.x.gate.users.Load()
		if err != nil {
			t.Fatal(err)
		}
		s.x.rejudge(nil, changed)
		if got, want := outcomes(n.reply()), []string{"1 " + strings.TrimSuffix(noCommand("simba.next")[1:], "\r\n")}; !slices.Equal(got, want) {
			t.Errorf("without the right to NEXT the wait ended with %q, want %q", got, want)
		}
	})
}

func TestAWaitViaAWaiterInATransactionTimesOut(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.expect("MULTI", ok)
		p.expect(next(0), failed(string(errNoMulti)))
		p.expect("DISCARD", ok)
		p.expect("MULTI", ok)
		p.expect(acquireVia("c", 1, "0"), "+QUEUED\r\n")
		if got := values(strings.TrimPrefix(p.do("EXEC"), "*1\r\n"))["status"]; got != "timeout" {
			t.Errorf("inside EXEC the status is %q, want timeout", got)
		}
		for _, call := range []string{`'SIMBA.NEXT', '` + theWaiter + `', '0'`, `'SIMBA.ACQUIRE', 'm', 'c', '1', 'WAIT', '0', 'VIA', '` + theWaiter + `', 'REQUEST', '1'`} {
			if got := p.do(`EVAL "return redis.call(` + call + `)" 0`); !strings.Contains(got, "not allowed from script") {
				t.Errorf("a script that calls %s got %q, want a refusal", call, got)
			}
		}
	})
}

func TestWaitsHaveALimit(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		refused := func(n int) bool {
			t.Helper()
			reply := p.do(acquireVia("c", n, "0"))
			return strings.HasPrefix(reply, tooManyWaiting)
		}
		s.server.SetMaxClients(2)
		for i := range 2 * maxWaitsPerClient {
			if refused(i + 1) {
				t.Fatalf("request %d was refused", i+1)
			}
		}
		if !refused(99) {
			t.Error("more than ten waits for each of maxclients were accepted")
		}
		acquire := ticket.acquire
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{Status: simba.StatusRenewed, Owner: "c", Token: 6, Transition: time.Second}, nil, nil
		}
		p.wantStatus(acquireVia("c", 99, "0"), "renewed")
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{Status: simba.StatusAcquired, Owner: "c", Token: 7, Transition: time.Second}, nil, nil
		}
		p.wantStatus(acquireVia("c", 2*maxWaits, "0"), "acquired")
		ticket.release = func(r simba.ReleaseRequest) (bool, simba.Seq, error) { return r.Token == 7, 0, nil }
		p.expect(releaseVia("c", 2*maxWaits), ":1\r\n") // the reply may have been lost
		ticket.acquire, ticket.release = acquire, nil

		s.server.SetMaxClients(10_000)
		for i := 2 * maxWaitsPerClient; i < maxWaits; i++ {
			if refused(i + 1) {
				t.Fatalf("request %d was refused", i+1)
			}
		}
		if !refused(maxWaits + 1) {
			t.Errorf("more than %d waits of a waiter were accepted", maxWaits)
		}
		p.expect(releaseVia("c", 1), ":0\r\n")
		if refused(maxWaits + 1) {
			t.Error("after a wait has ended, another one was refused")
		}
	})
}

func TestMaxMemoryCountsWaits(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, _, n *peer) {
		before := s.x.store.dataset()
		p.wantStatus("SIMBA.ACQUIRE m d 1000", "queued")
		polling := s.x.store.dataset() - before
		p.wantStatus(acquireVia("c", 1, "1000"), "queued")
		if wait := s.x.store.dataset() - before - polling; wait < waitBytes {
			t.Errorf("a wait takes %d bytes, want at least %d", wait, waitBytes)
		}
		s.x.SetMaxMemory(1)
		p.expect(acquireVia("e", 2, "1000"), failed("OOM command not allowed when used memory > 'maxmemory'."))
		p.wantStatus(acquireVia("c", 3, "1000"), "queued") // waits already
		n.wantNext(1000, "1 queued")
		time.Sleep(time.Second)
		n.wantNext(1000, "3 timeout")
		synctest.Wait()
		if n := s.x.store.waits.Load(); n != 0 {
			t.Errorf("%d waits are counted, want 0", n)
		}
	})
}

func TestAWaitIsCounted(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		_, list, _ := strings.Cut(q.do("CLIENT LIST"), "id=3 ")
		if line, _, _ := strings.Cut(list, "\n"); !strings.Contains(line, " flags=b ") || !strings.Contains(line, " cmd=simba.next ") {
			t.Errorf("CLIENT LIST shows the connection of the wait as %q, want the flag b", line)
		}
		time.Sleep(3 * time.Second)
		q.do("SIMBA.RELEASE m o")
		n.wantNext(1000, "1 acquired")
		stats := s.x.Stats()
		if got := stats.Waits; got.Count() != 1 || got.Micros != 3_000_000 {
			t.Errorf("%d waits of %d µs are counted, want one of 3 s", got.Count(), got.Micros)
		}
		if got := s.x.store.backend.Stats().Handoffs; got != 1 {
			t.Errorf("%d handoffs are counted, want 1", got)
		}
		if got := stats.Acquires; got[0] != (Count{"acquired", 2}) || got[2] != (Count{"queued", 0}) {
			t.Errorf("the counted requests are %v, want that of o and that of c as acquired", got)
		}
	})
}

func TestAnUnblockedNextEndsNoWait(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		for how, want := range map[string]string{"": "*0\r\n", " ERROR": failed(unblocked[resp.UnblockedError].Error())} {
			n.send(next(1000))
			synctest.Wait()
			q.expect("CLIENT UNBLOCK 3"+how, ":1\r\n")
			if got := n.reply(); got != want {
				t.Errorf("after CLIENT UNBLOCK%s SIMBA.NEXT replied %q, want %q", how, got, want)
			}
		}
		if got := p.queue(); got != "c blocked" {
			t.Errorf("the queue has %q, want c blocked", got)
		}
		n.send(next(1000))
		synctest.Wait()
		s.running.Go(func() { s.server.Shutdown(context.Background()) })
		if got := n.reply(); got != failed(unblocked[resp.ShuttingDown].Error()) {
			t.Errorf("at a shutdown SIMBA.NEXT replied %q", got)
		}
	})
}

// slowTicket is a ticket of a store that takes a minute to end a wait.
type slowTicket struct{ *oneTicket }

func (t slowTicket) End(why simba.EndReason) (simba.Outcome, error) {
	time.Sleep(time.Minute)
	return t.oneTicket.End(why)
}

func TestTheEndOfAWaitDelaysNoOther(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, fast *oneTicket) {
		slow := slowTicket{newOneTicket()}
		acquire := fast.acquire
		fast.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			if r.Contender != "slow" {
				return acquire(r)
			}
			out, _, err := slow.acquire(r)
			return out, slow, err
		}
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus(acquireVia("slow", 1, "0"), "queued")
		p.wantStatus(acquireVia("c", 2, "0"), "queued")
		began := time.Now()
		slow.grant().Wake()
		fast.grant().Wake()
		n.wantNext(1000, "2 acquired")
		if took := time.Since(began); took > 0 {
			t.Errorf("the outcome of a wait took %v, because another wait was ending", took)
		}
		n.wantNext(40_000)
		n.wantNext(40_000, "1 acquired")
	})
}

func TestAWaiterWithoutAGrantWaitsOnViaAWaiter(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus(acquireVia("c", 1, "10000"), "queued")
		ticket.missing().Wake()
		n.wantNext(1000)
		if got := s.backend.commits(); !slices.Contains(got, 9) {
			t.Errorf("the backend committed %v, want 9: the change at the wake-up is missing", got)
		}
		ticket.grant().Wake()
		n.wantNext(1000, "1 acquired")
		if got := ticket.endings(); !slices.Equal(got, []simba.EndReason{simba.EndWoken, simba.EndWoken}) {
			t.Errorf("the wait ended with %v, want twice woken", got)
		}
		if got := s.backend.commits(); !slices.Contains(got, 11) {
			t.Errorf("the backend committed %v, want 11: the outcome came before the grant was durable", got)
		}
	})
}

func TestNoOutcomeIsSentWithoutItsCommit(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		s.backend.commit = func(seq simba.Seq) error {
			if seq == 11 {
				return errors.New("the disk failed")
			}
			return nil
		}
		n.send(next(1000))
		synctest.Wait()
		ticket.grant().Wake()
		n.expectEnd()
	})
}

func TestALeaseThatBecameTooLongIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := newOneTicket()
		longest := time.Hour
		s := newSite(t, Config{Backend: ticket, LongestLease: func() time.Duration { return longest }})
		s.backend = ticket.fakeBackend
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		longest = time.Second
		s.backend.takeCalls()
		ticket.grant().Wake()
		if got := outcomes(n.do(next(1000))); len(got) != 1 || !strings.HasPrefix(got[0], "1 TOOLONG ") {
			t.Errorf("SIMBA.NEXT returned %q, want the error TOOLONG", got)
		}
		if got := s.backend.takeCalls(); !slices.Contains(got, `release m c token=7 session=false reason=""`) {
			t.Errorf("the backend was called with %q, want a release", got)
		}
	})
}

func TestAnErrorOfTheStoreIsAnOutcome(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			ticket.waiter = r.Waiter
			return simba.Outcome{Status: simba.StatusWaiting}, brokenTicket{err: &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("no table")}}, nil
		}
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		ticket.waiter.Wake()
		n.wantNext(1000, "1 ERR engine mysql misconfigured: no table")
		if got := s.x.Stats().Acquires; got[len(got)-1] != (Count{"error", 1}) {
			t.Errorf("the counted requests are %v, want one error", got)
		}
	})
}

type brokenTicket struct {
	simba.Ticket
	err error
}

func (b brokenTicket) End(simba.EndReason) (simba.Outcome, error) { return simba.Outcome{}, b.err }

// If the store does not answer, it may have granted the mutex.
func TestReleaseOfARequestReturnsTheErrorOfTheStore(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{Status: simba.StatusWaiting}, brokenTicket{err: &simba.UnavailableError{Engine: "mysql", Err: errors.New("no route")}}, nil
		}
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		if got := p.do(releaseVia("c", 1)); !strings.Contains(got, "no route") {
			t.Errorf("RELEASE replied %q, want the error of the store", got)
		}
	})
}

// The grants of a socket that breaks go to the next waiters, if a NEXT has not returned them, or if
// the client has read only the first byte of the reply.
func TestTheGrantsOfABrokenSocketAreHandedOff(t *testing.T) {
	for _, half := range []bool{false, true} {
		s := embeddedSite(t, Config{})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		far.(*net.TCPConn).SetWriteBuffer(4 << 10) // the reply must not fit
		nc.(*net.TCPConn).SetReadBuffer(4 << 10)
		s.running.Go(func() { s.server.ServeConn(far) })
		n, p, second := newPeer(t, nc), s.dial(), s.dial()
		n.wantNext(0)
		second.do("SIMBA.NEXT " + otherWaiter + " 0")

		const waits = 500
		mutex := func(i int) string { return fmt.Sprint(strings.Repeat("m", 200), i) }
		for i := range waits {
			p.wantStatus("SIMBA.ACQUIRE "+mutex(i)+" o 60000", "acquired")
			p.wantStatus(fmt.Sprintf("SIMBA.ACQUIRE %s first 60000 WAIT 0 VIA %s REQUEST %d", mutex(i), theWaiter, i+1), "queued")
			p.wantStatus(fmt.Sprintf("SIMBA.ACQUIRE %s second 60000 WAIT 0 VIA %s REQUEST %d", mutex(i), otherWaiter, i+1), "queued")
		}
		for i := range waits {
			p.expect("SIMBA.RELEASE "+mutex(i)+" o", ":1\r\n")
		}
		found, _ := s.x.waiters.Load(theWaiter)
		w := found.(*waiter)
		for ready := 0; ready < waits; {
			w.mu.Lock()
			ready = len(w.ready)
			w.mu.Unlock()
		}
		if half {
			n.send(next(1000))
			if _, err := nc.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		nc.(*net.TCPConn).SetLinger(0) // resets the connection
		nc.Close()
		handedOff := 0
		for handedOff < waits {
			for _, o := range outcomes(second.do("SIMBA.NEXT " + otherWaiter + " 60000")) {
				if _, status, _ := strings.Cut(o, " "); status != "acquired" {
					t.Fatalf("a wait ended with %q", o)
				}
				handedOff++
			}
		}
	}
}

func TestAWakeUpBeforeTheTicketIsKept(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		acquire := ticket.acquire
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			out, granted, err := acquire(r)
			ticket.grant().Wake()
			return out, granted, err
		}
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		n.wantNext(1000, "1 acquired")
	})
}

func TestAWaitViaAWaiterThatBeginsDuringAChangeOfRulesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newUsersFile(t, team...)
		ticket := newOneTicket()
		acquire := ticket.acquire
		s := newSite(t, Config{Backend: ticket, Users: file.open()})
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			file.write(team[0], "user billing on >pw ~other +@all")
			if _, err := s.x.gate.users.Load(); err != nil { // rejudge finds no wait yet
				t.Error(err)
			}
			return acquire(r)
		}
		p, n := s.as("billing"), s.as("billing")
		n.wantNext(0)
		p.wantStatus("SIMBA.ACQUIRE billing:1 billing 1000 WAIT 0 VIA "+theWaiter+" REQUEST 1", "queued")
		n.wantNext(1000, "1 "+strings.TrimSuffix(noKey[1:], "\r\n"))
		wantEnd(t, ticket, simba.EndLeft)
	})
}
