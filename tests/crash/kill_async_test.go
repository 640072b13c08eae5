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
	asyncShared = 4   // mutexes that all clients share
	asyncTTL    = 150 // ms; the longest lease, so also the recovery delay
)

// TestKillLosesNothingThatAsyncPromises kills a server with --durability async again and again. A
// kill may undo the last replies. Even so, no token repeats, and no contender gets a mutex before
// the lease of another has ended.
func TestKillLosesNothingThatAsyncPromises(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server, async", "embedded")
	rounds := simbatest.Count(10, 500)
	m := &asyncModel{t: t, leases: make(map[string]asyncLease), seen: make(map[int64]string)}
	dir := t.TempDir() + "/data"
	delayed := 0
	for round := range rounds {
		s := simbatest.StartIn(t, dir, "--durability", "async")
		if round%10 == 9 { // kill the server during a recovery delay
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
				t.Errorf("the clients got too few grants in round %d", round)
			}
		case <-s.Exited():
			t.Errorf("the server ended before the test killed it:\n%s", s.Output())
		}
		s.Kill()
		clients.Wait()
		if t.Failed() {
			t.Fatalf("the errors above are of round %d", round)
		}
	}
	t.Counted(rounds, "%d tenures acknowledged, %d of them lost while their leases ran, %d kills in the recovery delay", len(m.seen), m.lost, delayed)
}

type asyncModel struct {
	t testing.TB

	mu      sync.Mutex            // guards the fields below
	leases  map[string]asyncLease // by mutex: the last lease in a reply
	seen    map[int64]string      // token → mutex and owner
	highest int64                 // highest token in seen
	floor   int64                 // highest before the last start; new tokens must be above it
	lost    int                   // leases that a kill has undone
	left    int                   // grants until the kill
	enough  chan struct{}         // closed when left is 0
	end     time.Time             // latest end of the round
}

// asyncLease is a lease in a reply. Unless its owner has sent RELEASE, the owner relies on the
// lease until its end, by the clock of the test.
type asyncLease struct {
	owner     string
	token     int64
	until     time.Time
	run       chan struct{} // identifies the round of its grant or last renewal
	releasing bool
	lost      bool
}

func (m *asyncModel) begin(grants int, end time.Time) {
	m.floor, m.left, m.enough, m.end = m.highest, grants, make(chan struct{}), end
}

func (m *asyncModel) short() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left > 0
}

// work acquires and releases mutexes until the kill.
func (m *asyncModel) work(addr, contender string, round int) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return // the kill came before the connection
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

// acquire sends ACQUIRE and checks the reply. It returns false if the connection is broken.
func (m *asyncModel) acquire(c redis.Conn, mutex, contender string) bool {
	ttl := 20 + rand.IntN(asyncTTL-20)
	asked := time.Now()
	end := asked.Add(time.Duration(ttl) * time.Millisecond)
	m.mu.Lock()
	if mine := m.leases[mutex]; mine.owner == contender && end.Before(mine.until) {
		mine.until = end // the request may shorten the lease, even without a reply
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
			m.t.Errorf("%s: token %d of %s is not above %d, the highest before the crash", mutex, token, contender, m.floor)
		}
		if was := m.seen[token]; was != "" {
			m.t.Errorf("%s: token %d of %s was already the token of %s", mutex, token, contender, was)
		}
		if old.token < token && !old.releasing && replied.Before(old.until) {
			m.t.Errorf("%s: granted to %s with token %d while %s holds it with %d for %v more",
				mutex, contender, token, old.owner, old.token, old.until.Sub(replied))
		}
		m.seen[token], m.highest = mutex+" "+contender, max(m.highest, token)
		if old.token < token { // otherwise the recorded reply is newer
			m.leases[mutex] = asyncLease{owner: contender, token: token, until: end, run: m.enough}
		}
		m.granted()
	case "renewed":
		if m.seen[token] != mutex+" "+contender {
			m.t.Errorf("%s: renewed for %s with token %d, the token of %q", mutex, contender, token, m.seen[token])
		}
		if old.token == token {
			m.leases[mutex] = asyncLease{owner: contender, token: token, until: end, run: m.enough, releasing: old.releasing}
		}
	case "busy":
		if r["owner"] == "" && !old.lost && !old.releasing && old.run != m.enough && replied.Before(old.until) {
			old.lost = true // the kill has undone the grant
			m.leases[mutex] = old
			m.lost++
		}
	default:
		m.t.Errorf("%s: ACQUIRE returns the unexpected status %v", mutex, status)
	}
	return true
}

// release sends RELEASE if the contender owns the mutex. It returns false if the connection is
// broken.
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
	// The reply is 0 if the lease has ended, or a kill has undone it.
	_, err := redis.Int(c.Do("SIMBA.RELEASE", mutex, contender, "TOKEN", mine.token))
	return err == nil || m.gone(err)
}

// gone returns false. It fails the test if err is an error reply, and not a broken connection.
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
