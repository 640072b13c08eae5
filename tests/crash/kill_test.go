package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	killClients = 8
	killShared  = 4         // mutexes that all clients share
	killTTL     = 3_600_000 // ms; no lease ends during the test
)

// TestKillLosesNothingAcknowledged kills the server again and again while clients acquire and
// release. It always restarts the server with the same data.
func TestKillLosesNothingAcknowledged(test *testing.T) {
	t := simbatest.NewCampaign(test, "kill -9 of the server", "embedded")
	rounds := simbatest.Count(30, 500)
	m := &model{t: t, held: make(map[string]tenure), asked: make(map[string]map[string]bool), seen: make(map[int64]string)}
	dir := t.TempDir() + "/data"
	for round := range rounds {
		s := simbatest.StartIn(t, dir)
		m.compare(s)
		if t.Failed() {
			t.Fatalf("the errors above are of round %d", round)
		}

		// The kill comes after a random number of replies, so clients and store can be at any point
		// of their work.
		m.beginRound(1 + rand.IntN(300))
		var clients sync.WaitGroup
		for id := range killClients {
			clients.Go(func() { m.work(s.Addr, fmt.Sprintf("c%d", id), round) })
		}
		select {
		case <-m.enough:
		case <-s.Exited():
			t.Errorf("the server ended before the test killed it:\n%s", s.Output())
		}
		s.Kill()
		clients.Wait()
	}
	t.Counted(rounds, "%d tenures acknowledged or found, %d still held", len(m.seen), len(m.held))
}

type model struct {
	t testing.TB

	mu      sync.Mutex                 // guards the fields below
	held    map[string]tenure          // by mutex: the tenure that a kill must not undo
	asked   map[string]map[string]bool // by mutex: contenders whose ACQUIRE has no reply
	seen    map[int64]string           // token → mutex and owner
	highest int64                      // highest token in seen
	floor   int64                      // highest before the last start; new tokens must be above it
	left    int                        // replies until the kill
	enough  chan struct{}              // closed when left is 0
}

type tenure struct {
	owner     string
	token     int64
	releasing bool // the server may have executed RELEASE
}

func (m *model) beginRound(replies int) {
	m.floor, m.left, m.enough = m.highest, replies, make(chan struct{})
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
		if !m.acquire(c, mutex, contender) {
			return
		}
		if rand.IntN(3) > 0 && !m.release(c, mutex, contender) {
			return
		}
	}
}

// acquire sends ACQUIRE and checks the reply. It returns false if the connection is broken.
func (m *model) acquire(c redis.Conn, mutex, contender string) bool {
	m.mu.Lock()
	if m.asked[mutex] == nil {
		m.asked[mutex] = make(map[string]bool)
	}
	m.asked[mutex][contender] = true
	m.mu.Unlock()

	r, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", mutex, contender, killTTL, "NOQUEUE"))
	if err != nil {
		return m.gone(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asked[mutex], contender)
	token := r["token"].(int64)
	switch status := r["status"]; status {
	case "acquired":
		if token <= m.floor {
			m.t.Errorf("%s: token %d of %s is not above %d, the highest before the crash", mutex, token, contender, m.floor)
		}
		if old := m.held[mutex]; old.token != 0 && (!old.releasing || old.token > token) {
			m.t.Errorf("%s: granted to %s with token %d while %s holds it with token %d", mutex, contender, token, old.owner, old.token)
		}
		m.held[mutex] = tenure{owner: contender, token: token}
		m.see(token, mutex, contender)
	case "renewed":
		if was := m.held[mutex]; was.owner != contender || was.token != token {
			m.t.Errorf("%s: renewed for %s with token %d, although %s holds it with token %d", mutex, contender, token, was.owner, was.token)
		}
	case "busy":
	default:
		m.t.Errorf("%s: ACQUIRE returns the unexpected status %v", mutex, status)
	}
	m.replied()
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if released != 1 {
		m.t.Errorf("%s: RELEASE by %s with token %d does not return 1", mutex, contender, mine.token)
	}
	if m.held[mutex].token == mine.token {
		delete(m.held, mutex)
	}
	m.replied()
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

func (m *model) replied() {
	if m.left--; m.left == 0 {
		close(m.enough)
	}
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
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Close()
	mutexes := slices.AppendSeq(slices.Collect(maps.Keys(m.held)), maps.Keys(m.asked))
	slices.Sort(mutexes)
	mutexes = slices.Compact(mutexes)
	for _, mutex := range mutexes {
		if err := c.Send("SIMBA.OWNER", mutex); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		m.t.Fatal(err)
	}
	for _, mutex := range mutexes {
		r, err := simbatest.ToRecord(c.Receive())
		if err != nil {
			m.t.Fatal(err)
		}
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
	m.held[mutex] = tenure{owner: owner, token: token}
	m.see(token, mutex, owner)
}
