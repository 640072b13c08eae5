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
	asyncTTL    = 150 // ms, the longest: the next run is quiet for so long
)

// TestKillLosesNothingThatAsyncPromises does the same in durability async, where a crash may undo what was told in the
// last milliseconds: no token is given out again for all that, and whoever was told of a lease is alone until its end.
func TestKillLosesNothingThatAsyncPromises(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server, async", "embedded")
	rounds := simbatest.Count(10, 500)
	m := &asyncModel{t: t, leases: make(map[string]asyncLease), seen: make(map[int64]string)}
	dir := t.TempDir() + "/data"
	quiet := 0
	for round := range rounds {
		s := simbatest.StartIn(t, dir, "--durability", "async")
		if round%10 == 9 { // it dies while nobody may be granted anything
			m.begin(0, time.Now().Add(rand.N(asyncTTL*time.Millisecond)))
			quiet++
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
	t.Counted(rounds, "%d tenures acknowledged, %d of them lost while their leases ran, %d kills in the quiet time", len(m.seen), m.lost, quiet)
}

// asyncModel is what the clients know of the server.
type asyncModel struct {
	t testing.TB

	mu      sync.Mutex            // guards what follows
	leases  map[string]asyncLease // of each mutex, the last that somebody was told of
	seen    map[int64]string      // tokens ever seen → mutex and owner
	highest int64                 // of them
	floor   int64                 // highest when the server started: new tenures are above it
	lost    int
	left    int           // grants until the kill
	enough  chan struct{} // closed when left is 0
	end     time.Time     // of the round at the latest
}

// asyncLease is one that its owner believes in until its end, by the test's clock, unless it has asked for it to be released.
type asyncLease struct {
	owner     string
	token     int64
	until     time.Time
	run       chan struct{} // names the run of the server
	releasing bool
	lost      bool
}

func (m *asyncModel) begin(grants int, end time.Time) {
	m.floor, m.left, m.enough, m.end = m.highest, grants, make(chan struct{}), end
}

// short reports whether the clients were to be granted more in this round.
func (m *asyncModel) short() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left > 0
}

// work acquires and releases until the server is gone.
func (m *asyncModel) work(addr, contender string, round int) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return // killed before this client came
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
		mine.until = end // it may be shorter from now on, whatever it is told
		m.leases[mutex] = mine
	}
	m.mu.Unlock()
	r, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", mutex, contender, ttl, "NOQUEUE"))
	if err != nil {
		return m.gone(err)
	}
	told := time.Now()
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
		if old.token < token && !old.releasing && told.Before(old.until) {
			m.t.Errorf("%s: granted to %s with token %d while %s holds it with %d for %v more",
				mutex, contender, token, old.owner, old.token, old.until.Sub(told))
		}
		m.seen[token], m.highest = mutex+" "+contender, max(m.highest, token)
		if old.token < token { // else it was told later, of what came before
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
		if r["owner"] == "" && !old.lost && !old.releasing && old.run != m.enough && told.Before(old.until) {
			old.lost = true // it is free, and nobody gets it
			m.leases[mutex] = old
			m.lost++
		}
	default:
		m.t.Errorf("%s: status %v", mutex, status)
	}
	return true
}

// release gives the mutex up if contender holds it, and reports whether the server replied.
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
	_, err := redis.Int(c.Do("SIMBA.RELEASE", mutex, contender, "TOKEN", mine.token)) // 0 if the lease is over, or lost
	return err == nil || m.gone(err)
}

// gone returns false; an error that is the server's reply has no place here.
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
