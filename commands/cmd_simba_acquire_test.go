package commands

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// oneTicket is a backend with one mutex that another contender owns. Each acquire with a Waiter
// blocks, and the test decides how its Ticket ends.
type oneTicket struct {
	*fakeBackend
	delay   time.Duration // of End
	err     error         // of End; nil = none
	mu      sync.Mutex    // protects the rest
	waiter  simba.Waiter
	granted bool
	missed  int // how many of the next wake-ups come without a grant
	ends    []simba.EndReason
}

func newOneTicket() *oneTicket {
	s := &oneTicket{fakeBackend: new(fakeBackend)}
	s.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
		if r.Waiter == nil {
			return simba.Outcome{Status: simba.StatusBusy, Owner: "o", Token: 6}, nil, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiter = r.Waiter
		return simba.Outcome{Status: simba.StatusWaiting}, s, nil
	}
	return s
}

// grant grants the mutex to the waiter without waking it.
func (s *oneTicket) grant() simba.Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted = true
	return s.waiter
}

func (s *oneTicket) End(why simba.EndReason) (simba.Outcome, error) {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, why)
	if s.err != nil {
		return simba.Outcome{}, s.err
	}
	if why == simba.EndWoken && s.missed > 0 {
		s.missed--
		return simba.Outcome{Status: simba.StatusWaiting, Seq: 9}, nil
	}
	if s.granted && why != simba.EndGone {
		return simba.Outcome{Status: simba.StatusAcquired, Owner: "c", Token: 7, TTL: time.Second, Transition: time.Second, Seq: 11}, nil
	}
	return simba.Outcome{Status: simba.StatusTimeout, Owner: "o", Token: 6, Seq: 10}, nil
}

func (s *oneTicket) Abandon() (simba.Seq, error) {
	s.note("abandon")
	return 12, nil
}

func (s *oneTicket) endings() []simba.EndReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ends)
}

func status(reply string) string {
	parts := strings.Split(reply, "\r\n")
	if len(parts) < 5 {
		return reply
	}
	return parts[4]
}

func withTicket(t *testing.T, test func(*testing.T, *site, *oneTicket)) {
	synctest.Test(t, func(t *testing.T) {
		ticket := newOneTicket()
		s := newSite(t, Config{Backend: ticket})
		s.backend = ticket.fakeBackend
		test(t, s, ticket)
	})
}

func wantEnd(t *testing.T, ticket *oneTicket, want simba.EndReason) {
	t.Helper()
	if got := ticket.endings(); len(got) != 1 || got[0] != want {
		t.Errorf("the wait ended with %v, want once with %v", got, want)
	}
}

// The backend sends the notices of a request when the connection commits.
func TestARequestWithoutAResultCommits(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p := s.dial()
		p.send("SIMBA.ACQUIRE m c 1000 WAIT 0")
		synctest.Wait()
		if got := s.backend.commits(); !slices.Equal(got, []simba.Seq{0}) {
			t.Errorf("a blocked request committed %v, want 0", got)
		}
		ticket.grant().Wake()
		p.reply()
		s.backend.commits()
		ticket.acquire = func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{}, nil, simba.ErrOutOfMemory
		}
		p.do("SIMBA.ACQUIRE m c 1000")
		if got := s.backend.commits(); !slices.Equal(got, []simba.Seq{0}) {
			t.Errorf("a failed request committed %v, want 0", got)
		}
	})
}

// missing makes the next wake-up come without a grant.
func (s *oneTicket) missing() simba.Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed++
	return s.waiter
}

func TestAWaiterWithoutAGrantWaitsOn(t *testing.T) {
	for _, end := range []struct {
		name, want string
		by         func(*site, *oneTicket)
		why        simba.EndReason
	}{
		{"until it is granted", "acquired", func(_ *site, ticket *oneTicket) { ticket.grant().Wake() }, simba.EndWoken},
		{"until its time is up", "timeout", func(*site, *oneTicket) {}, simba.EndTimeout},
		{"until it is unblocked", "timeout", func(s *site, _ *oneTicket) { s.dial().expect("CLIENT UNBLOCK 1", ":1\r\n") }, simba.EndTimeout},
		{"until it is unblocked with an error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n", func(s *site, _ *oneTicket) {
			s.dial().expect("CLIENT UNBLOCK 1 ERROR", ":1\r\n")
		}, simba.EndLeft},
	} {
		t.Run(end.name, func(t *testing.T) {
			withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
				p := s.dial()
				began := time.Now()
				p.send("SIMBA.ACQUIRE m c 1000 WAIT 1000")
				synctest.Wait()
				for range 2 {
					time.Sleep(300 * time.Millisecond)
					ticket.missing().Wake()
					synctest.Wait()
				}
				if got := s.backend.commits(); !slices.Contains(got, 9) {
					t.Errorf("the backend committed %v, want 9: the change at the wake-up is missing", got)
				}
				end.by(s, ticket)
				if got := status(p.reply()); got != end.want {
					t.Errorf("the waiter got %q, want %q", got, end.want)
				}
				if took := time.Since(began); end.name == "until its time is up" && took != time.Second {
					t.Errorf("SIMBA.ACQUIRE waited %v, want 1s in all", took)
				}
				if got := s.backend.commits(); end.why != simba.EndWoken && !slices.Contains(got, 10) {
					t.Errorf("the backend committed %v, want 10: the reply came before the end of the wait was durable", got)
				}
				want := []simba.EndReason{simba.EndWoken, simba.EndWoken, end.why}
				if got := ticket.endings(); !slices.Equal(got, want) {
					t.Errorf("the wait ended with %v, want %v", got, want)
				}
			})
		})
	}
}

// While each commit takes longer than the lease, each grant is lost before the client can learn of it.
func TestAWaiterThatLosesEachGrantCanEnd(t *testing.T) {
	const commit = 400 * time.Millisecond
	for _, end := range []struct {
		wait, want string
		by         func(*site)
		after      time.Duration
	}{
		{"1000", "timeout", func(*site) {}, 4 * commit},
		{"0", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n", func(s *site) {
			time.Sleep(commit / 2)
			s.dial().expect("CLIENT UNBLOCK 1 ERROR", ":1\r\n")
		}, 3 * commit},
		{"0", "-UNBLOCKED the server is shutting down; ask again when it is back\r\n", func(s *site) {
			time.Sleep(commit / 2)
			s.running.Go(func() { s.server.Shutdown(context.Background()) })
		}, 3 * commit},
	} {
		withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
			s.backend.commit = func(simba.Seq) error {
				time.Sleep(commit)
				ticket.missing().Wake()
				return nil
			}
			p := s.dial()
			began := time.Now()
			p.send("SIMBA.ACQUIRE m c 100 WAIT " + end.wait)
			synctest.Wait()
			end.by(s)
			if got := status(p.reply()); got != end.want {
				t.Errorf("WAIT %s: the waiter got %q, want %q", end.wait, got, end.want)
			}
			if took := time.Since(began); took != end.after {
				t.Errorf("WAIT %s: SIMBA.ACQUIRE waited %v, want %v", end.wait, took, end.after)
			}
		})
	}
}

// While an fsync hangs, the reply waits and the lease runs.
func TestAGrantAfterAWaitHasTheRemainingWindows(t *testing.T) {
	for _, tt := range []struct {
		hangs time.Duration
		owner simba.Tenure
		late  time.Duration // the reply of the store with the owner
		want  []string
	}{
		{0, simba.Tenure{}, 0, []string{"acquired", "c", ":7", ":1000"}},
		{300 * time.Millisecond, simba.Tenure{}, 0, []string{"acquired", "c", ":7", ":700"}},
		{time.Second, simba.Tenure{}, 0, []string{"timeout", "", ":0", ":0"}},
		{time.Minute, simba.Tenure{Owner: "o", Token: 8, TTL: time.Hour, Transition: time.Hour}, 0, []string{"timeout", "o", ":8", ":3600000"}},
		// The contender has renewed the lease meanwhile.
		{time.Minute, simba.Tenure{Owner: "c", Token: 7, TTL: time.Hour, Transition: time.Hour}, 0, []string{"acquired", "c", ":7", ":3600000"}},
		{time.Minute, simba.Tenure{Owner: "c", Token: 7, TTL: time.Hour, Transition: time.Hour}, time.Second, []string{"acquired", "c", ":7", ":3599000"}},
		{time.Minute, simba.Tenure{Owner: "c", Token: 7, TTL: time.Second, Transition: time.Second}, time.Second, []string{"timeout", "", ":0", ":0"}},
	} {
		withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
			s.backend.commit = func(seq simba.Seq) error {
				if seq == 11 {
					time.Sleep(tt.hangs)
				}
				return nil
			}
			s.backend.owner = func(string) (simba.Tenure, simba.Seq, error) {
				time.Sleep(tt.late)
				return tt.owner, 20, nil
			}
			p := s.dial()
			p.send("SIMBA.ACQUIRE m c 1000 WAIT 0")
			synctest.Wait()
			ticket.grant().Wake()
			reply := strings.Split(p.reply(), "\r\n")
			if got := []string{reply[4], reply[8], reply[11], reply[14]}; !slices.Equal(got, tt.want) {
				t.Errorf("after a commit of %v the reply has %q, want %q", tt.hangs, got, tt.want)
			}
			if got := s.backend.commits(); tt.hangs >= time.Second && !slices.Contains(got, 20) {
				t.Errorf("the backend committed %v, want 20: the reply came before the owner was durable", got)
			}
		})
	}
}

func TestAGrantIsTheReplyWhateverEndsTheWait(t *testing.T) {
	for _, end := range []struct {
		name string
		by   func(*site)
	}{
		{"timeout", func(*site) { time.Sleep(time.Second) }},
		{"unblock timeout", func(s *site) { s.dial().expect("CLIENT UNBLOCK 1", ":1\r\n") }},
		{"unblock error", func(s *site) { s.dial().expect("CLIENT UNBLOCK 1 ERROR", ":1\r\n") }},
		{"shutdown", func(s *site) { s.running.Go(func() { s.server.Shutdown(context.Background()) }) }},
	} {
		withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
			p := s.dial()
			p.send("SIMBA.ACQUIRE m c 1000 WAIT 1000")
			synctest.Wait()
			ticket.grant() // does not wake the waiter
			end.by(s)
			if got := status(p.reply()); got != "acquired" {
				t.Errorf("after %s SIMBA.ACQUIRE replied the status %q, want acquired", end.name, got)
			}
		})
	}
}

func TestNothingBlocksInsideExec(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p := s.dial()
		p.expect("MULTI", ok)
		p.expect("SIMBA.ACQUIRE m c 1000 WAIT 0", "+QUEUED\r\n")
		p.expect("PING", "+QUEUED\r\n")
		reply := p.do("EXEC")
		if !strings.Contains(reply, "timeout") || !strings.HasSuffix(reply, "+PONG\r\n") {
			t.Errorf("EXEC replied %q, want timeout and PONG", reply)
		}
		want := []string{"acquire m c 1s+0s noqueue=false session=false wait=true"}
		if got := s.backend.takeCalls(); !slices.Equal(got, want) {
			t.Errorf("the backend was called with %q, want %q", got, want)
		}
	})
}

func TestBlockedTimeIsNotTheCommands(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		p := s.dial()
		p.do("SIMBA.ACQUIRE m c 1000 WAIT 60000")
		p.expect("SLOWLOG LEN", ":0\r\n")
		if info := p.do("INFO commandstats"); !strings.Contains(info, "cmdstat_simba.acquire:calls=1,usec=0,") {
			t.Errorf("INFO commandstats replied\n%s\nwant usec=0: blocked time does not count", info)
		}
	})
}
