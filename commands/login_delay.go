package commands

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// loginDelays slows password guessing down. Each wrong password delays its own reply, and each
// failure from the same address makes the next delay longer. A right password is usually not
// delayed.
//
// A client may ignore the delay and try again on a new connection. So loginDelays adds up the
// pending delays of each address. While their sum exceeds maxOwedDelay, the server delays the check
// of each password from the address, right or wrong.
type loginDelays struct {
	mu    sync.Mutex
	hosts map[netip.Prefix]*loginFailures
}

type loginFailures struct {
	failures int
	last     time.Time
	owed     time.Time // when its delays would end if they ran one after the other
}

const (
	freeFailures   = 3                      // without a delay, for typing errors
	firstDelay     = 100 * time.Millisecond // doubles with each failure
	maxDelay       = 5 * time.Second
	maxOwedDelay   = 32 * maxDelay
	debtDelay      = time.Second      // before a check; clients time out only after 2 s to 5 s
	forgetFailures = 10 * time.Minute // after the last failure
	maxHosts       = 4096             // addresses in memory
)

// hostOf returns the part of a remote address by which failures are counted: the IPv4 address, or
// the IPv6 /64 network. All texts that are not ip:port count as one host.
func hostOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	host, _ := addr.Prefix(bits) // bits are valid
	return host
}

// failed counts a wrong password from a host and returns the delay of the reply.
func (g *loginDelays) failed(host netip.Prefix) time.Duration {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.hosts[host]
	if f == nil || now.Sub(f.last) >= forgetFailures {
		f = g.enter(host)
	}
	f.failures++
	f.last = now
	over := f.failures - freeFailures
	if over <= 0 {
		return 0
	}
	wait := maxDelay
	if over < 16 {
		wait = min(wait, firstDelay<<(over-1))
	}
	if f.owed.Before(now) {
		f.owed = now
	}
	if f.owed = f.owed.Add(wait); f.owed.Sub(now) > 2*maxOwedDelay {
		f.owed = now.Add(2 * maxOwedDelay) // limits how long beforeCheck returns debtDelay
	}
	return wait
}

// beforeCheck returns the delay before a password of that host is checked.
func (g *loginDelays) beforeCheck(host netip.Prefix) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.hosts[host]; f != nil && time.Until(f.owed) > maxOwedDelay {
		return debtDelay
	}
	return 0
}

// enter adds a host. If maxHosts is reached, it removes the host with the oldest last failure.
func (g *loginDelays) enter(host netip.Prefix) *loginFailures {
	if g.hosts == nil {
		g.hosts = make(map[netip.Prefix]*loginFailures)
	}
	if len(g.hosts) >= maxHosts {
		hosts := slices.Collect(maps.Keys(g.hosts))
		delete(g.hosts, slices.MinFunc(hosts, func(a, b netip.Prefix) int { return g.hosts[a].last.Compare(g.hosts[b].last) }))
	}
	f := new(loginFailures)
	g.hosts[host] = f
	return f
}
