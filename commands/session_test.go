package commands

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// granting returns a backend that grants every acquire and reports every guarded tenure as lost.
func granting() *fakeBackend {
	token := uint64(0)
	f := &fakeBackend{
		release: func(simba.ReleaseRequest) (bool, simba.Seq, error) { return true, 21, nil },
		guard: func(r simba.GuardRequest) (simba.Outcome, error) {
			return simba.Outcome{Status: simba.StatusLost, Owner: "another", Token: 1000}, nil
		},
	}
	f.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
		token++
		return simba.Outcome{Status: simba.StatusAcquired, Owner: r.Contender, Token: token, Seq: 20}, nil, nil
	}
	return f
}

// released runs commands on a connection. Then it ends the connection, or the server, and returns
// the calls of the backend that this end causes.
func released(t *testing.T, backend *fakeBackend, shutdown bool, commands ...string) (calls []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{Backend: backend})
		p := s.dial()
		for _, c := range commands {
			if got := p.do(c); got[0] == '-' {
				t.Fatalf("%s replied %s, want no error", c, got)
			}
		}
		backend.takeCalls()
		backend.commits()
		if shutdown {
			if err := s.server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		} else {
			p.nc.Close()
		}
		synctest.Wait()
		calls = backend.takeCalls()
		slices.Sort(calls)
		if got := backend.commits(); len(calls) > 0 && !slices.Equal(got, []simba.Seq{21}) {
			t.Errorf("the backend committed %v after the releases, want [21]", got)
		}
	})
	return calls
}

func TestTheEndOfASessionReleasesItsLeases(t *testing.T) {
	release := func(m string) string {
		return fmt.Sprintf(`release %s c token=0 session=true reason="session closed"`, m)
	}
	for _, tt := range []struct {
		name     string
		commands []string
		want     []string
	}{
		{"bound", []string{"SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.ACQUIRE n c 1000 SESSION"}, []string{release("m"), release("n")}},
		{"not bound", []string{"SIMBA.ACQUIRE m c 1000"}, nil},
		{"taken again without SESSION", []string{"SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.ACQUIRE m c 1000"}, nil},
		{"released", []string{"SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.RELEASE m c"}, nil},
		{"lost", []string{"SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.GUARD m c 1000"}, nil},
		{"RESET in between", []string{"SIMBA.ACQUIRE m c 1000 SESSION", "RESET"}, []string{release("m")}},
	} {
		if got := released(t, granting(), false, tt.commands...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: calls %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAShutdownKeepsTheLeasesOfSessions(t *testing.T) {
	if got := released(t, granting(), true, "SIMBA.ACQUIRE m c 1000 SESSION"); len(got) > 0 {
		t.Errorf("the shutdown called the backend with %q, want no call", got)
	}
}

func TestAGuardWithAnotherTokenDoesNotEndTheSession(t *testing.T) {
	backend := granting()
	backend.guard = func(simba.GuardRequest) (simba.Outcome, error) {
		return simba.Outcome{Status: simba.StatusLost, Owner: "c", Token: 1}, nil
	}
	if got := released(t, backend, false, "SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.GUARD m c 1000 TOKEN 99"); len(got) != 1 {
		t.Errorf("the backend was called with %q, want one release", got)
	}
}

func TestASessionForgetsExpiredLeases(t *testing.T) {
	backend := granting() // its Check reports every tenure as ended
	var c *client
	s := newSite(t, Config{Backend: backend})
	p := s.dial()
	for i := range 10 * firstSweep {
		p.do(fmt.Sprintf("SIMBA.ACQUIRE m%d c 1000 SESSION", i))
	}
	p.expect("PING", "+PONG\r\n")
	c = s.server.Conns()[0].State().(*client)
	p.nc.Close()
	s.stop() // after this, the test may read the state of the client
	if n := len(c.session.byMutex); n >= firstSweep {
		t.Errorf("the session has %d leases, want fewer than firstSweep, because all have ended", n)
	}
}

func TestAnIdleConnectionWithASessionLeaseIsNotClosed(t *testing.T) {
	unavailable := &simba.UnavailableError{Engine: "redis", Err: errors.New("away")}
	for name, row := range map[string]struct {
		acquire string
		fault   error // the error of the acquire
		owner   simba.Tenure
		err     error // the error of Owner
		kept    bool
	}{
		"lease runs":       {acquire: "SIMBA.ACQUIRE m c 1000 SESSION", owner: simba.Tenure{Owner: "c", Token: 1}, kept: true},
		"lease has ended":  {acquire: "SIMBA.ACQUIRE m c 1000 SESSION"},
		"another's lease":  {acquire: "SIMBA.ACQUIRE m c 1000 SESSION", owner: simba.Tenure{Owner: "d", Token: 2}},
		"store is away":    {acquire: "SIMBA.ACQUIRE m c 1000 SESSION", err: unavailable, kept: true},
		"lease may run":    {acquire: "SIMBA.ACQUIRE m c 1000 SESSION", fault: unavailable, owner: simba.Tenure{Owner: "c", Token: 9}, kept: true},
		"lease never was":  {acquire: "SIMBA.ACQUIRE m c 1000 SESSION", fault: unavailable},
		"lease is unbound": {acquire: "SIMBA.ACQUIRE m c 1000", owner: simba.Tenure{Owner: "c", Token: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := granting()
				if row.fault != nil {
					backend.acquire = func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
						return simba.Outcome{}, nil, row.fault
					}
				}
				backend.owner = func(string) (simba.Tenure, simba.Seq, error) { return row.owner, 0, row.err }
				s := newSite(t, Config{Backend: backend})
				s.server.SetIdleTimeout(time.Minute)
				p := s.dial()
				p.do(row.acquire)
				if !row.kept {
					began := time.Now()
					p.expectEnd()
					if d := time.Since(began); d != time.Minute {
						t.Errorf("the server closed the connection after %v, want 1m", d)
					}
					return
				}
				time.Sleep(time.Hour)
				p.expect("PING", "+PONG\r\n")
			})
		})
	}
}
