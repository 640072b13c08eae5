package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// The names of two waiters, each as short or as long as possible.
var (
	theWaiter   = strings.Repeat("w", minWaiterName)
	otherWaiter = strings.Repeat("x", maxWaiterName)
)

// acquireVia returns an ACQUIRE of the mutex m that waits via theWaiter.
func acquireVia(contender string, n int, wait string) string {
	return fmt.Sprintf("SIMBA.ACQUIRE m %s 60000 WAIT %s VIA %s REQUEST %d", contender, wait, theWaiter, n)
}

func releaseVia(contender string, n int) string {
	return fmt.Sprintf("SIMBA.RELEASE m %s VIA %s REQUEST %d", contender, theWaiter, n)
}

// on returns the command for another mutex than m.
func on(mutex, command string) string { return strings.Replace(command, " m ", " "+mutex+" ", 1) }

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
	p.send(next(ms))
	p.wantOutcomes(want...)
}

func (p *peer) wantOutcomes(want ...string) {
	p.t.Helper()
	if got := outcomes(p.reply()); !slices.Equal(got, want) {
		p.t.Errorf("SIMBA.NEXT returned the outcomes %q, want %q", got, want)
	}
}

func (p *peer) wantStatus(command, want string) {
	p.t.Helper()
	if got := values(p.do(command))["status"]; got != want {
		p.t.Errorf("%s replied the status %q, want %q", command, got, want)
	}
}

// wantNoNumber fails the test unless ACQUIRE replies the status and no SIMBA.NEXT will return an
// outcome.
func (p *peer) wantNoNumber(acquire, want string) {
	p.t.Helper()
	v := values(p.do(acquire))
	if _, numbered := v["request"]; numbered || v["status"] != want {
		p.t.Errorf("%s replied %v, want %s without a number", acquire, v, want)
	}
}

// wantQueue compares the contenders in the queue of m, and the kinds of their waits.
func (p *peer) wantQueue(want string) {
	p.t.Helper()
	synctest.Wait()
	var list []string
	for _, record := range strings.Split(p.do("SIMBA.QUEUE m"), bulk("contender"))[1:] {
		v := values(bulk("contender") + record)
		list = append(list, v["contender"]+" "+v["kind"])
	}
	if got := strings.Join(list, ", "); got != want {
		p.t.Errorf("the queue has %q, want %q", got, want)
	}
}

// withWaiter calls test with three connections to a server that has the engine embedded: two for
// requests, and one that has bound theWaiter. The contender o owns the mutex m.
func withWaiter(t *testing.T, test func(t *testing.T, s *site, p, q, n *peer)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{Backend: newEngine(t)})
		p, q, n := s.dial(), s.dial(), s.dial()
		n.wantNext(0)
		p.wantStatus("SIMBA.ACQUIRE m o 3600000", "acquired")
		test(t, s, p, q, n)
	})
}

// withWaiterOfTicket is withTicket with a connection for requests and one that has bound theWaiter.
func withWaiterOfTicket(t *testing.T, test func(t *testing.T, s *site, ticket *oneTicket, p, n *peer)) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p, n := s.dial(), s.dial()
		n.wantNext(0)
		test(t, s, ticket, p, n)
	})
}

// withUsers calls test with connections of two users. The user boss may do everything. The user c
// sends requests on p, and has bound theWaiter on n. allow changes the rules of c, and returns
// what rejudge needs.
func withUsers(t *testing.T, test func(t *testing.T, s *site, allow func(rules string) []*access.Account, boss, p, n *peer)) {
	synctest.Test(t, func(t *testing.T) {
		rules := []string{"user default on nopass ~* &* +@all", "user boss on >pw ~* +@all as:*", "user c on >pw ~* +@all"}
		file := newUsersFile(t, rules...)
		s := newSite(t, Config{Backend: newEngine(t), Users: file.open()})
		allow := func(of string) []*access.Account {
			file.write(append(rules[:2:2], "user c on >pw "+of)...)
			changed, err := s.x.gate.users.Load()
			if err != nil {
				t.Error(err)
			}
			return changed
		}
		boss, p, n := s.as("boss"), s.as("c"), s.as("c")
		n.wantNext(0)
		test(t, s, allow, boss, p, n)
	})
}

func TestNextReturnsTheOutcomeOfAWait(t *testing.T) {
	wire := func(words string) string { return strings.ReplaceAll(words+" ", " ", "\r\n") }
	for proto, head := range map[int][2]string{2: {"*14", "*1 *16"}, 3: {"%7", "*1 %8"}} {
		withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
			p.do(fmt.Sprint("HELLO ", proto))
			n.do(fmt.Sprint("HELLO ", proto))
			p.expect("SIMBA.ACQUIRE m c 10000 TRANSITION 500 WAIT 0 VIA "+theWaiter+" REQUEST 9223372036854775807",
				wire(head[0]+" $7 request :9223372036854775807 $6 status $6 queued $5 owner $1 o $5 token :1 $3 ttl :3600000 $10 transition :3600000 $8 position :1"))
			n.send(next(2000))
			synctest.Wait()
			time.Sleep(1500 * time.Millisecond)
			q.expect("SIMBA.RELEASE m o", ":1\r\n")
			want := wire(head[1] + " $7 request :9223372036854775807 $5 mutex $1 m $6 status $8 acquired $5 owner $1 c $5 token :2 $3 ttl :10000 $10 transition :10500 $8 position :0")
			if got := n.reply(); got != want {
				t.Errorf("in RESP%d SIMBA.NEXT replied\n%q, want\n%q", proto, got, want)
			}
		})
	}
}

// Outcomes wait for the next SIMBA.NEXT, but a wait never lasts longer than its limit.
func TestAWaitTimesOutWithoutANext(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "1000"), "queued")
		p.wantStatus(acquireVia("d", 2, "2000"), "queued")
		time.Sleep(time.Second)
		p.wantQueue("d blocked")
		time.Sleep(time.Second)
		synctest.Wait()
		n.wantNext(1000, "1 timeout", "2 timeout")
	})
}

func TestARequestNumberIsNew(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		p.expect(acquireVia("d", 1, "0"), failed(string(errOldRequest)))
		p.wantQueue("c blocked")
		p.do("SIMBA.RELEASE m o")
		n.wantNext(1000, "1 acquired")
		p.expect(acquireVia("d", 1, "0"), failed(string(errOldRequest))) // has brought a tenure
	})
}

func TestAGrantThatExpiresBeforeNextIsATimeout(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
		p.wantStatus("SIMBA.ACQUIRE x o 60000", "acquired")
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		p.wantStatus(on("x", strings.Replace(acquireVia("c", 2, "0"), "60000", "4000", 1)), "queued")
		q.expect("SIMBA.RELEASE x o", ":1\r\n")
		synctest.Wait()
		q.expect("SIMBA.RELEASE m o", ":1\r\n")
		time.Sleep(4 * time.Second)
		reply := n.do(next(0))
		if got, ttl := outcomes(reply), values(reply)["ttl"]; !slices.Equal(got, []string{"2 timeout", "1 acquired"}) || ttl != "56000" {
			t.Errorf("after 4 s SIMBA.NEXT returned %q with %s ms left, want a timeout, and a grant with 56 s of 60 left", got, ttl)
		}
	})
}

func TestAWaiterBelongsToOneConnection(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.expect(next(0), failed(string(errOneWaiter)))
		n.expect("SIMBA.NEXT "+otherWaiter+" 0", failed(string(errOneWaiter)))
	})
}

func TestAWaiterBelongsToOneUser(t *testing.T) {
	withUsers(t, func(t *testing.T, _ *site, _ func(string) []*access.Account, boss, p, n *peer) {
		boss.wantStatus("SIMBA.ACQUIRE m o 60000", "acquired")
		boss.wantNoNumber(acquireVia("b", 1, "0"), "queued")
		boss.expect(next(0), failed(string(errOneWaiter)))
		p.wantStatus(acquireVia("c", 2, "0"), "queued")
		boss.expect(releaseVia("c", 2), ":0\r\n")
		boss.wantQueue("b polling, c blocked")
		n.expect("AUTH boss pw", ok)
		boss.wantQueue("b polling, c polling")
	})
}

func TestReleaseEndsTheWaitOfARequest(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		own := releaseVia("c", 1)
		for _, foreign := range []string{releaseVia("c", 2), releaseVia("d", 1), on("x", own), strings.Replace(own, theWaiter, otherWaiter, 1)} {
			p.expect(foreign, ":0\r\n")
			p.wantQueue("c blocked")
		}
		p.expect(own, ":0\r\n")
		p.wantQueue("")
		n.wantNext(1000) // no outcome
	})
}

// withTenure calls test for each way in which request 1 brings c a tenure.
func withTenure(t *testing.T, test func(p, q, n *peer)) {
	for _, learns := range []string{"before NEXT", "after NEXT", "at once"} {
		withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
			t.Log(learns)
			if learns == "at once" {
				q.do("SIMBA.RELEASE m o")
			}
			p.do(acquireVia("c", 1, "0"))
			q.do("SIMBA.RELEASE m o")
			synctest.Wait()
			if learns == "after NEXT" {
				n.wantNext(1000, "1 acquired")
			}
			test(p, q, n)
		})
	}
}

func TestReleaseEndsTheTenureOfARequest(t *testing.T) {
	withTenure(t, func(p, _, n *peer) {
		p.expect(releaseVia("c", 1), ":1\r\n")
		p.expect("SIMBA.OWNER m", "$-1\r\n")
		n.wantNext(1000)
	})
}

// A client that gives up request 1 and locks again finds its tenure by request 2, or gets a new one
// by request 3. The RELEASE of request 1 may arrive after that.
func TestALateReleaseSparesALaterRequest(t *testing.T) {
	for _, again := range []string{
		acquireVia("c", 2, "0"), "SIMBA.ACQUIRE m c 10000 NOQUEUE",
		"SIMBA.ACQUIRE m c 10000 WAIT 0 VIA " + otherWaiter + " REQUEST 2", // no such waiter
	} {
		withTenure(t, func(p, q, n *peer) {
			q.wantStatus(again, "renewed")
			p.do(releaseVia("c", 1))
			p.expectOwner("m", "c")

			p.do("SIMBA.BREAK m")
			p.wantStatus("SIMBA.ACQUIRE m o 60000", "acquired")
			p.wantStatus(acquireVia("c", 3, "0"), "queued")
			p.expect(releaseVia("c", 1), ":0\r\n")
			p.wantQueue("c blocked")
			q.do("SIMBA.RELEASE m o")
			n.wantNext(1000, "3 acquired")
			p.expect(releaseVia("c", 1), ":0\r\n")
			p.expectOwner("m", "c")
		})
	}
}

func TestARequestWaitsForTheReleaseOfAnEarlierOne(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, n *peer) {
		status := simba.StatusAcquired
		ticket.acquire = func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{Status: status, Owner: "c", Token: 7, TTL: time.Second, Transition: time.Second}, nil, nil
		}
		p.wantStatus(acquireVia("c", 1, "0"), "acquired")
		status = simba.StatusRenewed
		ticket.release = func(simba.ReleaseRequest) (bool, simba.Seq, error) {
			time.Sleep(time.Second)
			status = simba.StatusAcquired
			return true, 0, nil
		}
		p.send(releaseVia("c", 1))
		synctest.Wait()
		s.dial().wantStatus(acquireVia("c", 2, "0"), "acquired")
		p.reply()
	})
}

func TestAWaiterRemembersItsLastTenures(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, _ *peer) {
		for i := range maxBrought + 1 {
			p.wantStatus(on(fmt.Sprint("m", i), acquireVia("c", i+1, "0")), "acquired")
		}
		for i, want := range map[int]string{0: ":0\r\n", 1: ":1\r\n", maxBrought: ":1\r\n"} {
			p.expect(on(fmt.Sprint("m", i), releaseVia("c", i+1)), want)
		}
	})
}

func TestTheWaitsOfAWaiterThatEndsBecomePolling(t *testing.T) {
	for _, end := range []func(n *peer){
		func(n *peer) { n.nc.Close() },
		func(n *peer) { n.expect("RESET", "+RESET\r\n") },
		// The client is frozen. Its grants would be idle, each for a lease.
		func(n *peer) { time.Sleep(time.Millisecond); n.expectEnd() },
	} {
		withWaiter(t, func(t *testing.T, _ *site, p, q, n *peer) {
			time.Sleep(time.Minute)
			n.wantNext(0) // without waits it may be silent
			p.wantStatus(acquireVia("c", 1, "60000"), "queued")
			p.wantStatus("SIMBA.ACQUIRE m d 10000", "queued")
			time.Sleep(maxSilence - time.Millisecond)
			p.wantQueue("c blocked, d polling")
			end(n)
			p.wantQueue("c polling, d polling")
			q.wantNext(0)                                       // the name is free again
			q.wantStatus(acquireVia("c", 1, "60000"), "queued") // keeps its place
			p.wantQueue("c blocked, d polling")
		})
	}
}

// meanwhile makes each acquire call do before it returns.
func (s *oneTicket) meanwhile(do func()) {
	acquire := s.acquire
	s.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
		defer do()
		return acquire(r)
	}
}

func TestARequestInFlightAtTheEndOfTheWaiterPolls(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, _ *site, ticket *oneTicket, p, n *peer) {
		ticket.meanwhile(func() {
			n.nc.Close()
			time.Sleep(time.Second) // until endWaiter has ended
			ticket.grant()
		})
		p.wantNoNumber(acquireVia("c", 1, "0"), "timeout")
		wantEnd(t, ticket, simba.EndGone)
	})
}

func TestChangedRulesEndTheWaitsOfAWaiter(t *testing.T) {
	withUsers(t, func(t *testing.T, s *site, allow func(string) []*access.Account, boss, p, n *peer) {
		for i, mutex := range []string{"m", "x"} {
			boss.wantStatus(on(mutex, "SIMBA.ACQUIRE m o 60000"), "acquired")
			p.wantStatus(on(mutex, acquireVia("c", i+1, "0")), "queued")
		}
		for _, change := range [][2]string{{"~x +@all", "1 " + noKey[1:]}, {"~x +@all -simba.next", "2 " + noCommand("simba.next")[1:]}} {
			n.send(next(1000))
			synctest.Wait()
			s.x.rejudge(nil, allow(change[0]))
			n.wantOutcomes(strings.TrimSuffix(change[1], "\r\n"))
		}
	})
}

func TestAWaitViaAWaiterThatBeginsDuringAChangeOfRulesEnds(t *testing.T) {
	withUsers(t, func(t *testing.T, s *site, allow func(string) []*access.Account, boss, p, n *peer) {
		ticket := newOneTicket()
		ticket.meanwhile(func() { allow("~other +@all") }) // rejudge finds no wait yet
		s.x.store.backend = ticket
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		n.wantNext(1000, "1 "+strings.TrimSuffix(noKey[1:], "\r\n"))
		wantEnd(t, ticket, simba.EndLeft)
	})
}

func TestAWaitViaAWaiterInATransactionTimesOut(t *testing.T) {
	withWaiter(t, func(t *testing.T, _ *site, p, _, _ *peer) {
		p.expect("MULTI", ok)
		p.expect(next(0), failed(string(errNoMulti)))
		p.expect("DISCARD", ok)
		p.expect("MULTI", ok)
		p.expect(acquireVia("c", 1, "0"), "+QUEUED\r\n")
		if got := values(strings.TrimPrefix(p.do("EXEC"), "*1\r\n"))["status"]; got != "timeout" {
			t.Errorf("inside EXEC the status is %q, want timeout", got)
		}
		for _, call := range []string{next(0), acquireVia("c", 1, "0")} {
			if got := p.do(`EVAL "return redis.call('` + strings.ReplaceAll(call, " ", "','") + `')" 0`); !strings.Contains(got, "not allowed from script") {
				t.Errorf("a script that calls %s got %q, want a refusal", call, got)
			}
		}
	})
}

func TestWaitsHaveALimit(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, _ *peer) {
		wait := func(from, to int) {
			t.Helper()
			for n := from; n <= to; n++ {
				p.wantStatus(acquireVia("c", n, "0"), "queued")
			}
			if reply := p.do(acquireVia("c", to+1, "0")); !strings.HasPrefix(reply, tooManyWaiting) {
				t.Errorf("more than %d waits were accepted: %q", to, reply)
			}
		}
		s.server.SetMaxClients(2)
		wait(1, 2*maxWaitsPerClient)
		acquire := ticket.acquire
		for _, status := range []simba.Status{simba.StatusRenewed, simba.StatusAcquired} {
			ticket.acquire = func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
				return simba.Outcome{Status: status, Owner: "c", Token: 7, Transition: time.Second}, nil, nil
			}
			p.wantStatus(acquireVia("c", 2*maxWaits, "0"), status.String())
		}
		ticket.release = func(r simba.ReleaseRequest) (bool, simba.Seq, error) { return r.Token == 7, 0, nil }
		p.expect(releaseVia("c", 2*maxWaits), ":1\r\n") // the reply may have been lost
		ticket.acquire, ticket.release = acquire, nil

		s.server.SetMaxClients(10_000)
		wait(2*maxWaitsPerClient+1, maxWaits)
		p.expect(releaseVia("c", 1), ":0\r\n")
		p.wantStatus(acquireVia("c", maxWaits+1, "0"), "queued") // a wait has ended
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
		n.wantNext(2000, "3 timeout")
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
		if waits, acquires := stats.Waits, stats.Acquires; waits.Count() != 1 || waits.Micros != 3_000_000 || acquires[0] != (Count{"acquired", 2}) || acquires[2] != (Count{"queued", 0}) {
			t.Errorf("waits %v and requests %v are counted, want one wait of 3 s, and the requests of o and c as acquired", waits, acquires)
		}
	})
}

func TestAnUnblockedNextEndsNoWait(t *testing.T) {
	withWaiter(t, func(t *testing.T, s *site, p, q, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		wantReply := func(want string, unblock func()) {
			t.Helper()
			p.wantQueue("c blocked")
			n.send(next(1000))
			synctest.Wait()
			unblock()
			if got := n.reply(); got != want {
				t.Errorf("SIMBA.NEXT replied %q, want %q", got, want)
			}
		}
		wantReply("*0\r\n", func() { q.expect("CLIENT UNBLOCK 3", ":1\r\n") })
		wantReply(failed(unblocked[resp.UnblockedError].Error()), func() { q.expect("CLIENT UNBLOCK 3 ERROR", ":1\r\n") })
		wantReply(failed(unblocked[resp.ShuttingDown].Error()), func() { s.running.Go(func() { s.server.Shutdown(context.Background()) }) })
	})
}

func TestTheEndOfAWaitDelaysNoOther(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, _ *site, fast *oneTicket, p, n *peer) {
		slow, acquire := newOneTicket(), fast.acquire
		slow.delay = time.Minute
		fast.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			if r.Contender == "slow" {
				return slow.acquire(r)
			}
			return acquire(r)
		}
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
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, n *peer) {
		p.wantStatus(acquireVia("c", 1, "10000"), "queued")
		ticket.missing().Wake()
		n.wantNext(1000)
		ticket.grant().Wake()
		n.wantNext(1000, "1 acquired")
		if got := ticket.endings(); !slices.Equal(got, []simba.EndReason{simba.EndWoken, simba.EndWoken}) {
			t.Errorf("the wait ended with %v, want twice woken", got)
		}
		if got := s.backend.commits(); !slices.Contains(got, 9) || !slices.Contains(got, 11) {
			t.Errorf("the backend committed %v, want 9, the change at the first wake-up, and 11, the grant", got)
		}
	})
}

func TestNoOutcomeIsSentWithoutItsCommit(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		s.backend.commit = func(seq simba.Seq) error {
			return map[simba.Seq]error{11: errors.New("the disk failed")}[seq]
		}
		n.send(next(1000))
		synctest.Wait()
		ticket.grant().Wake()
		n.expectEnd()
	})
}

func TestALeaseThatBecameTooLongIsReleased(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, n *peer) {
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		s.x.cfg.LongestLease = func() time.Duration { return time.Second }
		ticket.grant().Wake()
		n.wantNext(1000, "1 "+s.x.vouch(time.Hour).Error())
		if got := s.backend.takeCalls(); !slices.Contains(got, `release m c token=7 session=false reason=""`) {
			t.Errorf("the backend was called with %q, want a release", got)
		}
	})
}

func TestAnErrorOfTheStoreIsAnOutcome(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, s *site, ticket *oneTicket, p, n *peer) {
		ticket.err = &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("no table")}
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		ticket.waiter.Wake()
		n.wantNext(1000, "1 ERR engine mysql misconfigured: no table")
		if got := s.x.Stats().Acquires; got[len(got)-1] != (Count{"error", 1}) {
			t.Errorf("the counted requests are %v, want one error", got)
		}
	})
}

// If the store does not answer, it may have granted the mutex.
func TestReleaseOfARequestReturnsTheErrorOfTheStore(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, _ *site, ticket *oneTicket, p, _ *peer) {
		ticket.err = &simba.UnavailableError{Engine: "mysql", Err: errors.New("no route")}
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		if got := p.do(releaseVia("c", 1)); !strings.Contains(got, "no route") {
			t.Errorf("RELEASE replied %q, want the error of the store", got)
		}
	})
}

func TestAWakeUpBeforeTheTicketIsKept(t *testing.T) {
	withWaiterOfTicket(t, func(t *testing.T, _ *site, ticket *oneTicket, p, n *peer) {
		ticket.meanwhile(func() { ticket.grant().Wake() })
		p.wantStatus(acquireVia("c", 1, "0"), "queued")
		n.wantNext(1000, "1 acquired")
	})
}
