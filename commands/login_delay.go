package commands

import (
	"net/netip"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

// loginDelays slow down who tries passwords: the reply to a wrong one waits, longer with each, on
// the connection's own goroutine. They are counted by address, so that another connection is no way
// around it; others of the same address whose password is right do not wait.
//
// Who does not listen to the reply but tries again on a new connection pays otherwise: when an
// address owes more waiting than maxOwedDelay, its next password is looked at only after a wait,
// right or wrong.
type loginDelays struct {
	mu    sync.Mutex
	hosts map[netip.Prefix]*loginFailures
}

type loginFailures struct {
	failures int
	last     time.Time
	owed     time.Time // until when its waits would last, one after the other
}

const (
	freeFailures   = 3                      // without a wait: people mistype
	firstDelay     = 100 * time.Millisecond // doubles with each
	maxDelay       = 5 * time.Second
	maxOwedDelay   = 32 * maxDelay
	debtDelay      = time.Second      // of a password that may be right: clients give up after 2 s to 5 s
	forgetFailures = 10 * time.Minute // after the last one
	maxHosts       = 4096             // addresses in memory
)

// hostOf is the part of an address that one attacker has for sure: the machine's, of IPv6 the
// network's. What is no address is all one host.
func hostOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	host, _ := addr.Prefix(bits) // bits fit
	return host
}

// failed counts a wrong password and returns how long the reply has to wait.
func (g *loginDelays) failed(host netip.Prefix) time.Duration {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.hosts[host]
	if who == nil || now.Sub(who.last) >= forgetFailures {
		who = g.enter(host, now)
	}
	who.failures++
	who.last = now
	over := who.failures - freeFailures
	if over <= 0 {
		return 0
	}
	wait := maxDelay
	if over < 16 {
		wait = min(wait, firstDelay<<(over-1))
	}
	if who.owed.Before(now) {
		who.owed = now
	}
	if who.owed = who.owed.Add(wait); who.owed.Sub(now) > 2*maxOwedDelay {
		who.owed = now.Add(2 * maxOwedDelay) // it is to be forgotten some day
	}
	return wait
}

// toll is how long a password of that host waits before it is looked at.
func (g *loginDelays) beforeCheck(host netip.Prefix) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if who := g.hosts[host]; who != nil && time.Until(who.owed) > maxOwedDelay {
		return debtDelay
	}
	return 0
}

// enter makes room for a host, if need be at the cost of the one that was silent longest.
func (g *loginDelays) enter(host netip.Prefix, now time.Time) *loginFailures {
	if g.hosts == nil {
		g.hosts = make(map[netip.Prefix]*loginFailures)
	}
	if len(g.hosts) >= maxHosts {
		var silent netip.Prefix
		oldest := now
		for h, who := range g.hosts {
			switch {
			case now.Sub(who.last) >= forgetFailures:
				delete(g.hosts, h)
			case !who.last.After(oldest):
				silent, oldest = h, who.last
			}
		}
		if len(g.hosts) >= maxHosts {
			delete(g.hosts, silent)
		}
	}
	who := new(loginFailures)
	g.hosts[host] = who
	return who
}

// pause has the command wait. Its connection notices meanwhile that the client has left, or that
// the server stops: then the wait is over.
func (c *client) pause(d time.Duration) resp.Wakeup {
	if d <= 0 {
		return resp.TimedOut
	}
	began := time.Now()
	why := c.conn.NewWait().Await(began.Add(d))
	c.parked += time.Since(began)
	return why
}
