package commands

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const wrongPass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"

// guarded runs a test in fake time on a server with the password sesam.
func guarded(t *testing.T, test func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{Users: newUsersFile(t, "user default on >sesam ~* &* +@all").open()})
		test(t, s)
	})
}

func took(p *peer, command, want string) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.expect(command, want)
	return time.Since(began)
}

func TestWrongPasswordsGetGrowingDelays(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		p := s.dialFrom("192.0.2.1:1000")
		for i, ms := range []int{0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000} {
			command := "AUTH guess"
			if i%2 == 1 {
				command = "HELLO 3 AUTH default guess"
			}
			if d := took(p, command, wrongPass); d != time.Duration(ms)*time.Millisecond {
				t.Errorf("guess %d took %v, want %d ms", i+1, d, ms)
			}
		}
		if d := took(p, "AUTH sesam", ok); d != 0 {
			t.Errorf("the right password took %v, want no delay", d)
		}
	})
}

// guessOn makes a client send wrong passwords until the delay is the longest.
func guessOn(p *peer) {
	p.t.Helper()
	for range 12 {
		p.expect("AUTH guess", wrongPass)
	}
	p.send("AUTH guess")
	synctest.Wait()
}

// Connections that guess passwords must not lock other clients out.
func TestManyGuessingConnectionsDelayARightPasswordByAtMostASecond(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		const connections, long = 200, time.Minute
		began := time.Now()
		var all sync.WaitGroup
		for i := range connections {
			p := s.dialFrom(fmt.Sprintf("192.0.2.1:%d", 1000+i))
			all.Go(func() {
				for time.Since(began) < long {
					p.expect("AUTH guess", wrongPass)
				}
			})
		}
		slowest := time.Duration(0)
		for time.Since(began) < long {
			time.Sleep(700 * time.Millisecond)
			slowest = max(slowest, took(s.dialFrom("192.0.2.1:9"), "AUTH sesam", ok))
			if d := took(s.dialFrom("192.0.2.2:9"), "AUTH sesam", ok); d != 0 {
				t.Fatalf("a right password from another address took %v, want no delay", d)
			}
		}
		if slowest != debtDelay {
			t.Errorf("the slowest right password from the same address took %v, want %v", slowest, debtDelay)
		}
		all.Wait()
		each := long/(debtDelay+maxDelay) + 2 // the first guesses wait less
		if n := s.x.observers.stats.denials[deniedAuth].Load(); n > uint64(connections*each) {
			t.Errorf("%d passwords of %d connections were checked in %v, want at most %d", n, connections, long, connections*each)
		}
	})
}

func TestLoginFailuresAreForgotten(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		p := s.dialFrom("192.0.2.1:1000")
		for range 8 {
			p.expect("AUTH guess", wrongPass)
		}
		time.Sleep(forgetFailures)
		if d := took(p, "AUTH guess", wrongPass); d != 0 {
			t.Errorf("a wrong password after forgetFailures took %v, want no delay", d)
		}
	})
}

func TestIgnoredDelaysApplyBeforeTheNextPassword(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		began := time.Now()
		for i := range 60 { // each on a new connection, which does not wait for the reply
			p := s.dialFrom(fmt.Sprintf("192.0.2.1:%d", 1000+i))
			p.send("AUTH guess")
			synctest.Wait()
			p.nc.Close()
		}
		synctest.Wait()
		if d := time.Since(began); d != 0 {
			t.Fatalf("the guesses took %v, want no time", d)
		}
		if d := took(s.dialFrom("192.0.2.1:9"), "AUTH sesam", ok); d != debtDelay {
			t.Errorf("after 60 guesses, a right password took %v, want %v", d, debtDelay)
		}
		time.Sleep(2 * maxOwedDelay)
		if d := took(s.dialFrom("192.0.2.1:9"), "AUTH sesam", ok); d != 0 {
			t.Errorf("long after the guesses, a right password took %v, want no delay", d)
		}
	})
}

func TestAStopDoesNotWaitForLoginDelays(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		p := s.dialFrom("192.0.2.1:1000")
		guessOn(p)
		began := time.Now()
		go s.server.Shutdown(context.Background())
		if got := p.reply(); got != wrongPass {
			t.Errorf("AUTH replied %q, want WRONGPASS", got)
		}
		p.expectEnd()
		if d := time.Since(began); d != 0 {
			t.Errorf("the stop took %v, want no time", d)
		}
	})
}

func TestATransactionDoesNotAvoidLoginDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(t, Config{Users: newUsersFile(t, append(team, "user target on >secret")...).open()}).dial()
		p.expect("MULTI", ok)
		p.expect("AUTH target secret", "+QUEUED\r\n")
		p.expect("HELLO 3 AUTH target secret", "+QUEUED\r\n")
		p.expect("EXEC", "*2\r\n"+failed(string(errNoMulti))+failed(string(errNoMulti)))
		p.expect("ACL WHOAMI", bulk("default"))
	})
}

func TestAnIPv6NetworkCountsAsOneHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true}, {"192.0.2.1:1", "192.0.2.2:1", false}, {"[::ffff:192.0.2.1]:1", "192.0.2.1:1", true},
		{"[2001:db8::1]:1", "[2001:db8::ffff:1]:2", true}, {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false}, {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1", true},
		{"pipe", "@", true}, {"pipe", "192.0.2.1:1", false},
	} {
		if same := hostOf(c.a) == hostOf(c.b); same != c.same {
			t.Errorf("%s and %s are the same host: %v, want %v", c.a, c.b, same, c.same)
		}
	}
}

func TestLoginFailuresAreBoundedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g loginDelays
		host := func(i int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		}
		for i := range maxHosts + 100 {
			g.failed(host(i))
			time.Sleep(time.Millisecond)
		}
		if len(g.hosts) != maxHosts || g.hosts[host(0)] != nil || g.hosts[host(maxHosts+99)] == nil {
			t.Errorf("%d hosts are in memory, want %d, without the first host (%v) and with the last host (%v)",
				len(g.hosts), maxHosts, g.hosts[host(0)], g.hosts[host(maxHosts+99)])
		}
	})
}
