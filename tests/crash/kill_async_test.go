package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	asyncShared = 4   // mutexes that all clients want
	asyncTTL    = 150 // ms, the longest lease, and so the recovery delay of the next run
)

// TestKillLosesNothingThatAsyncPromises is the same test in durability async, where a crash may
// undo the replies of the last milliseconds. Even so, no token repeats, and an owner has no rival
// until the end of its lease.
func TestKillLosesNothingThatAsyncPromises(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server, async", "embedded")
	rounds := simbatest.Count(10, 500)
	m := &asyncModel{t: t, leases: make(map[string]asyncLease), seen: make(map[int64]string)}
	dir := t.TempDir() + "/data"
	delayed := 0
	for round := range rounds {
		s := simbatest.StartIn(t, dir, "--durability", "async")
		if round%10 == 9 { // it dies during a recovery delay
			m.begin(0, time.Now().Add(rand.N(asyncTTL*time.Millisecond)))
			delayed++
		} else {
			m.begin(1+rand.IntN(100), time.Now().Add(simbatest.Patience))
		}
		var clients sync.WaitGroup
		for id := range killClients {
			clients.Go(func() { m.work(s.Addr, fmt.Sprintf("c%d", id), round) })
		}
		select {
		case <-m.enough:
		case <-time.After(time.Until(m.end)):
			if m.short() {
				t.Errorf("in round %d too few are granted anything", round)
			}
		case <-s.Exited():
			t.Errorf("the server ended by itself:\n%s", s.Output())
		}
		s.Kill()
		clients.Wait()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Counted(rounds, "%d tenures acknowledged, %d of them lost while their leases ran, %d kills in the recovery delay", len(m.seen), m.lost, delayed)
}

// asyncModel is what the clients know of the server.
type asyncModel struct {
	t testing.TB

	mu      sync.Mutex            // guards the fields below
	leases  map[string]asyncLease // of each mutex, the last that a client received
	seen    map[int64]string      // tokens ever seen → mutex and owner
	highest int64                 // of them
	floor   int64                 // highest when the server started: new tenures are above it
	lost    int
	left    int           // grants until the kill
	enough  chan struct{} // closed when left is 0
	end     time.Time     // the latest end of the round
}

// asyncLease is a lease that its owner relies on until its end, by the test's clock, unless it has
// sent a release.
type asyncLease struct {
	owner     string
	token     int64
	until     time.Time
	run       chan struct{} // identifies the run of the server
	releasing bool
	lost      bool
}

func (m *asyncModel) begin(grants int, end time.Time) {
	m.floor, m.left, m.enough, m.end = m.highest, grants, make(chan struct{}), end
}

// short reports whether this round needs more grants.
func (m *asyncModel) short() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left > 0
}

// work acquires and releases until the server is killed.
func (m *asyncModel) work(addr, contender string, round int) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return // killed before this client connected
	}
	defer c.Close()
	for n := 0; ; n++ {
		mutex := fmt.Sprintf("shared:%d", rand.IntN(asyncShared))
		if n%4 == 0 {
			mutex = fmt.Sprintf("own:%s:%d:%d", contender, round, n)
		}
		if !m.acquire(c, mutex, contender) || rand.IntN(3) > 0 && !m.release(c, mutex, contender) {
			return
		}
	}
}

// acquire reports whether the server replied.
func (m *asyncModel) acquire(c redis.Conn, mutex, contender string) bool {
	ttl := 20 + rand.IntN(asyncTTL-20)
	asked := time.Now()
	end := asked.Add(time.Duration(ttl) * time.Millisecond)
	m.mu.Lock()
	if mine := m.leases[mutex]; mine.owner == contender && end.Before(mine.until) {
		mine.until = end // the lease may be shorter from now on, whatever the reply
		m.leases[mutex] = mine
	}
	m.mu.Unlock()
	r, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", mutex, contender, ttl, "NOQUEUE"))
	if err != nil {
		return m.gone(err)
	}
	replied := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	old, token := m.leases[mutex], r["token"].(int64)
	switch status := r["status"]; status {
	case "acquired":
		if token <= m.floor {
			m.t.Errorf("%s: token %d of %s is not above %d, seen before the crash", mutex, token, contender, m.floor)
		}
		if was := m.seen[token]; was != "" {
			m.t.Errorf("%s: token %d of %s was that of %s", mutex, token, contender, was)
		}
		if old.token < token && !old.releasing && replied.Before(old.until) {
			m.t.Errorf("%s: granted to %s with token %d while %s holds it with %d for %v more",
				mutex, contender, token, old.owner, old.token, old.until.Sub(replied))
		}
		m.seen[token], m.highest = mutex+" "+contender, max(m.highest, token)
		if old.token < token { // otherwise an older reply came later
			m.leases[mutex] = asyncLease{owner: contender, token: token, until: end, run: m.enough}
		}
		m.granted()
	case "renewed":
		if m.seen[token] != mutex+" "+contender {
			m.t.Errorf("%s: renewed for %s with token %d, which was that of %q", mutex, contender, token, m.seen[token])
		}
		if old.token == token {
			m.leases[mutex] = asyncLease{owner: contender, token: token, until: end, run: m.enough, releasing: old.releasing}
		}
	case "busy":
		if r["owner"] == "" && !old.lost && !old.releasing && old.run != m.enough && replied.Before(old.until) {
			old.lost = true // the server has lost it, and it expires
			m.leases[mutex] = old
			m.lost++
		}
	default:
		m.t.Errorf("%s: status %v", mutex, status)
	}
	return true
}

// release releases the mutex if the contender holds it, and reports whether the server replied.
func (m *asyncModel) release(c redis.Conn, mutex, contender string) bool {
	m.mu.Lock()
	mine := m.leases[mutex]
	if mine.owner != contender {
		m.mu.Unlock()
		return true
	}
	mine.releasing = true
	m.leases[mutex] = mine
	m.mu.Unlock()
	// 0 if the lease is over, or lost
	_, err := redis.Int(c.Do("SIMBA.RELEASE", mutex, contender, "TOKEN", mine.token))
	return err == nil || m.gone(err)
}

// gone returns false. The error must not be a reply of the server.
func (m *asyncModel) gone(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		m.t.Error(err)
	}
	return false
}

func (m *asyncModel) granted() {
	if m.left--; m.left == 0 {
		close(m.enough)
	}
}
