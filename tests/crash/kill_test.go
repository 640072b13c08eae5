package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	killClients = 8
	killShared  = 4         // mutexes that all clients share
	killTTL     = 3_600_000 // ms; no lease ends during the test of always
	asyncTTL    = 150       // ms; the longest lease in async, so also the recovery delay
)

// TestKillLosesNothingAcknowledged kills the server again and again while clients acquire and
// release. It always restarts the server with the same data.
func TestKillLosesNothingAcknowledged(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server", "embedded")
	m := newModel(t, "always")
	rounds := simbatest.Count(30, 500)
	for round := range rounds {
		// The kill comes after a random number of replies, so clients and store can be at any point
		// of their work.
		m.round(round, 1+rand.IntN(300), simbatest.Patience)
	}
	t.Counted(rounds, "%d tenures acknowledged or found, %d still held", len(m.seen), len(m.held))
}

// TestKillLosesNothingThatAsyncPromises kills a server with --durability async again and again. A
// kill may undo the last replies. Even so, no token repeats, and no contender gets a mutex before
// the lease of another has ended.
func TestKillLosesNothingThatAsyncPromises(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server, async", "embedded")
	m := newModel(t, "async")
	rounds := simbatest.Count(10, 500)
	for round := range rounds {
		if round%10 == 9 { // kill the server during a recovery delay
			m.round(round, 0, rand.N(asyncTTL*time.Millisecond))
		} else {
			m.round(round, 1+rand.IntN(100), simbatest.Patience)
		}
	}
	t.Counted(rounds, "%d tenures acknowledged, %d of them lost while their leases ran, %d kills in the recovery delay", len(m.seen), m.lost, rounds/10)
}

// model has what clients know of the mutexes of a server that is killed again and again.
type model struct {
	t               testing.TB
	durability, dir string

	mu      sync.Mutex                 // guards the fields below
	held    map[string]lease           // by mutex: the last lease in a reply
	asked   map[string]map[string]bool // by mutex: contenders whose ACQUIRE has no reply
	seen    map[int64]string           // token → mutex and owner
	highest int64                      // highest token in seen
	floor   int64                      // highest before the last start; new tokens must be above it
	lost    int                        // leases that a kill has undone, in async
	left    int                        // grants until the kill
	enough  chan struct{}              // closed when left is 0
}

// lease is a lease in a reply. Unless its owner has sent RELEASE, the owner relies on the lease
// until its end, by the clock of the test.
type lease struct {
	owner     string
	token     int64
	until     time.Time
	run       chan struct{} // identifies the round of its grant or last renewal
	releasing bool          // the server may have executed RELEASE
	lost      bool
}

func newModel(t testing.TB, durability string) *model {
	return &model{
		t: t, durability: durability, dir: t.TempDir() + "/data",
		held: make(map[string]lease), asked: make(map[string]map[string]bool), seen: make(map[int64]string),
	}
}

func (m *model) always() bool { return m.durability == "always" }

// round starts the server, and kills it when clients have got that many grants, or after the given
// time.
func (m *model) round(round, grants int, atMost time.Duration) {
	s := simbatest.StartIn(m.t, m.dir, "--durability", m.durability)
	if m.always() {
		m.compare(s)
	}
	m.floor, m.left, m.enough = m.highest, grants, make(chan struct{})
	var clients sync.WaitGroup
	for id := range killClients {
		clients.Go(func() { m.work(s.Addr, fmt.Sprintf("c%d", id), round) })
	}
	select {
	case <-m.enough:
	case <-time.After(atMost):
		if grants > 0 {
			m.t.Errorf("the clients got too few grants")
		}
	case <-s.Exited():
		m.t.Errorf("the server ended before the test killed it:\n%s", s.Output())
	}
	s.Kill()
	clients.Wait()
	if m.t.Failed() {
		m.t.Fatalf("the errors above are of round %d", round)
	}
}

// work acquires and releases mutexes until the kill. It keeps a third of the client's own mutexes,
// so that more and more leases must survive.
func (m *model) work(addr, contender string, round int) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return // the kill came before the connection
	}
	defer c.Close()
	for n := 0; ; n++ {
		mutex := fmt.Sprintf("shared:%d", rand.IntN(killShared))
		if n%2 == 0 {
			mutex = fmt.Sprintf("own:%s:%d:%d", contender, round, n)
		}
		if !m.acquire(c, mutex, contender) || rand.IntN(3) > 0 && !m.release(c, mutex, contender) {
			return
		}
	}
}

// acquire sends ACQUIRE and checks the reply. It returns false if the connection is broken.
func (m *model) acquire(c redis.Conn, mutex, contender string) bool {
	ttl := killTTL
	if !m.always() {
		ttl = 20 + rand.IntN(asyncTTL-20)
	}
	end := time.Now().Add(time.Duration(ttl) * time.Millisecond)
	m.mu.Lock()
	if m.asked[mutex] == nil {
		m.asked[mutex] = make(map[string]bool)
	}
	unsure := !m.always() && m.asked[mutex][contender] // an earlier request may have begun a tenure
	m.asked[mutex][contender] = true
	if mine := m.held[mutex]; mine.owner == contender && end.Before(mine.until) {
		mine.until = end // the request may shorten the lease, even without a reply
		m.held[mutex] = mine
	}
	m.mu.Unlock()

	r, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", mutex, contender, ttl, "NOQUEUE"))
	if err != nil {
		return m.gone(err)
	}
	replied := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asked[mutex], contender)
	old, token := m.held[mutex], r.Number("token")
	now := lease{owner: contender, token: token, until: end, run: m.enough}
	switch status := r["status"]; status {
	case "acquired":
		if token <= m.floor {
			m.t.Errorf("%s: token %d of %s is not above %d, the highest before the crash", mutex, token, contender, m.floor)
		}
		if was := m.seen[token]; was != "" {
			m.t.Errorf("%s: token %d of %s was already the token of %s", mutex, token, contender, was)
		}
		if old.token < token && !old.releasing && replied.Before(old.until) || m.always() && old.token > token {
			m.t.Errorf("%s: granted to %s with token %d while %s holds it with %d for %v more", mutex, contender, token, old.owner, old.token, old.until.Sub(replied))
		}
		m.see(token, mutex, contender)
		if old.token < token { // otherwise the recorded reply is newer
			m.held[mutex] = now
		}
		if m.left--; m.left == 0 {
			close(m.enough)
		}
	case "renewed":
		if m.seen[token] != mutex+" "+contender && !unsure || m.always() && (old.owner != contender || old.token != token) {
			m.t.Errorf("%s: renewed for %s with token %d, although %s holds it with token %d", mutex, contender, token, old.owner, old.token)
		}
		if old.token == token {
			now.releasing = old.releasing
			m.held[mutex] = now
		}
	case "busy":
		if r["owner"] == "" && !old.lost && !old.releasing && old.run != m.enough && replied.Before(old.until) {
			if m.always() {
				m.t.Errorf("%s: ACQUIRE by %s returns busy without an owner, although %s holds it with token %d", mutex, contender, old.owner, old.token)
			}
			old.lost = true // the kill has undone the grant
			m.held[mutex] = old
			m.lost++
		}
	default:
		m.t.Errorf("%s: ACQUIRE returns the unexpected status %v", mutex, status)
	}
	return true
}

// release sends RELEASE if the contender owns the mutex. It returns false if the connection is
// broken.
func (m *model) release(c redis.Conn, mutex, contender string) bool {
	m.mu.Lock()
	mine := m.held[mutex]
	if mine.owner != contender {
		m.mu.Unlock()
		return true
	}
	mine.releasing = true
	m.held[mutex] = mine
	m.mu.Unlock()

	released, err := redis.Int(c.Do("SIMBA.RELEASE", mutex, contender, "TOKEN", mine.token))
	if err != nil {
		return m.gone(err)
	}
	if !m.always() { // the reply is 0 if the lease has ended, or a kill has undone it
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if released != 1 {
		m.t.Errorf("%s: RELEASE by %s with token %d does not return 1", mutex, contender, mine.token)
	}
	if m.held[mutex].token == mine.token {
		delete(m.held, mutex)
	}
	return true
}

// gone returns false. It fails the test if err is an error reply, and not a broken connection.
func (m *model) gone(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		m.t.Error(err)
	}
	return false
}

func (m *model) see(token int64, mutex, owner string) {
	who := mutex + " " + owner
	if was, ok := m.seen[token]; ok && was != who {
		m.t.Errorf("token %d of %s was already the token of %s", token, was, who)
	}
	m.seen[token] = who
	m.highest = max(m.highest, token)
}

// compare checks the reply of SIMBA.OWNER for each mutex that may have an owner. Then it updates
// the model to the replies.
func (m *model) compare(s *simbatest.Server) {
	c, err := redis.Dial("tcp", s.Addr)
	simbatest.Must(m.t, err)
	defer c.Close()
	mutexes := slices.AppendSeq(slices.Collect(maps.Keys(m.held)), maps.Keys(m.asked))
	slices.Sort(mutexes)
	mutexes = slices.Compact(mutexes)
	for _, mutex := range mutexes {
		simbatest.Must(m.t, c.Send("SIMBA.OWNER", mutex))
	}
	simbatest.Must(m.t, c.Flush())
	for _, mutex := range mutexes {
		r, err := simbatest.ToRecord(c.Receive())
		simbatest.Must(m.t, err)
		m.compareOne(mutex, r)
	}
	clear(m.asked)
}

func (m *model) compareOne(mutex string, r simbatest.Record) {
	acknowledged, asked := m.held[mutex], m.asked[mutex]
	if r == nil {
		if acknowledged.token != 0 && !acknowledged.releasing {
			m.t.Errorf("%s is free, but the server acknowledged the owner %s with token %d", mutex, acknowledged.owner, acknowledged.token)
		}
		delete(m.held, mutex)
		return
	}
	owner, token := r["owner"].(string), r["token"].(int64)
	left, length := r["ttl"].(int64), r["ttl_at"].(int64)-r["acquired_at"].(int64)
	switch {
	case token == acknowledged.token && owner == acknowledged.owner:
	case acknowledged.token != 0 && !acknowledged.releasing:
		m.t.Errorf("%s has the owner %s with token %d, but the server acknowledged %s with token %d", mutex, owner, token, acknowledged.owner, acknowledged.token)
	case !asked[owner]:
		m.t.Errorf("%s has the owner %s with token %d, but that contender had no ACQUIRE in flight at the kill", mutex, owner, token)
	case token <= m.floor:
		m.t.Errorf("%s: token %d of %s is not above %d, the highest before the crash", mutex, token, owner, m.floor)
	}
	if length != killTTL || r["transition_at"] != r["ttl_at"] || left <= 0 || left > killTTL {
		m.t.Errorf("%s: the recovered lease has other windows than requested: %v", mutex, r)
	}
	m.held[mutex] = lease{owner: owner, token: token, until: time.Now().Add(killTTL * time.Millisecond)}
	m.see(token, mutex, owner)
}
