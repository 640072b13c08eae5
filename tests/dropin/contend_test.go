package dropin

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// lease is the length of leases in milliseconds. No lease ends by itself, even on a busy machine.
const lease = 1_200_000

// early limits the wait for a grant, behind all other waiters. It is shorter than a lease.
const early = lease * 2 / 3 * time.Millisecond

// soon limits the wait for an effect of a notice. It is shorter than a lease. With QUIET=true it is
// also shorter than the 10 s after which a server on Redis reads a mutex again.
var soon = need.AtMost(8 * time.Second)

// longestLoad limits the length of a contest that counts tenures. A slow machine counts fewer.
const longestLoad = time.Minute

// contender acquires and releases a mutex again and again.
type contender interface {
	// acquire returns when the contender owns the mutex. owner is the owner's name in the lock's
	// record.
	acquire(ctx context.Context) (owner string, err error)
	release(ctx context.Context) error
}

// fenced is a contender that knows the token of its last tenure; 0 = its scripts return none.
type fenced interface{ token() uint64 }

// killable is a contender that the test may kill while it is the owner. A killed contender does not
// release the mutex.
type killable interface{ killedAsOwner() bool }

// site has servers of one engine that share a store. Contenders of other systems connect to the
// store's address. With the embedded engine, this is the address of the server itself.
type site struct {
	engine  string
	servers []*simbatest.Server
	store   string
}

// newSite starts servers of an engine with one store. For the embedded engine it starts only one.
func newSite(t testing.TB, engine string, servers int, more ...string) *site {
	t.Helper()
	at := &site{engine: engine}
	var flags []string
	at.store, flags = simbatest.Store(t, engine)
	flags = append(flags, more...)
	if engine == "embedded" {
		servers = 1
	}
	for range servers {
		at.servers = append(at.servers, simbatest.Start(t, flags...))
	}
	if engine == "embedded" {
		at.store = at.servers[0].Addr
	}
	return at
}

func (at *site) last() *simbatest.Server { return at.servers[len(at.servers)-1] }

// contest lets contenders acquire and release one mutex, and checks the rules.
type contest struct {
	t       *testing.T
	at      *site
	server  *simbatest.Server // the first server of the site
	mutex   string
	rdb     *redis.Client // reads the owner and the history
	noted   notes
	running sync.WaitGroup

	// patience limits a contender's wait for a grant. If it is shorter than the lease, only notices
	// wake waiters in time.
	patience time.Duration

	// lease is the length of leases of ours in milliseconds; 0 = the constant lease.
	lease int64
}

func newContest(t *testing.T, mutex string) *contest {
	t.Helper()
	return newContestAt(t, newSite(t, "embedded", 1), mutex)
}

func newContestAt(t *testing.T, at *site, mutex string) *contest {
	t.Helper()
	return &contest{
		t: t, at: at, server: at.servers[0], mutex: mutex, rdb: connect(t, at.servers[0]),
		patience: simbatest.Patience, noted: notes{t: t, broken: make(map[string]int)},
	}
}

// enter starts a contender that acquires and releases the mutex rounds times, with a pause after
// each round.
func (c *contest) enter(k contender, rounds int, pause time.Duration) {
	c.running.Go(func() {
		for n := 0; n < rounds && c.tryRound(k, n); n++ {
			time.Sleep(pause)
		}
	})
}

// enterUntil starts a contender that acquires and releases the mutex until done is closed. Pauses
// are random, and longer on a busy machine, where a round takes longer. Otherwise the queue would
// never be empty, and contenders without a queue entry would starve.
func (c *contest) enterUntil(running *sync.WaitGroup, k contender, done <-chan struct{}, most time.Duration) {
	running.Go(func() {
		began := time.Now()
		for n := 0; c.tryRound(k, n); n++ {
			select {
			case <-done:
				return
			case <-time.After(rand.N(most + min(10*time.Since(began), time.Second/2))):
			}
			began = time.Now()
		}
	})
}

func (c *contest) tryRound(k contender, n int) bool {
	err := c.round(k)
	if err != nil {
		c.noted.breaks(noStarvation, "round %d of %T: %v", n, k, err)
	}
	return err == nil
}

func (c *contest) round(k contender) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), simbatest.Patience)
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	owner, err := k.acquire(waiting)
	if err != nil {
		return err
	}
	from := tenures.Clock()
	token, err := c.ownerToken(ctx, k, owner)
	if err != nil {
		return err
	}
	f, knows := k.(fenced)
	n := tenure{Tenure: tenures.Tenure{Owner: owner, Token: token, From: from, To: tenures.Clock()}, kind: fmt.Sprintf("%T", k), tokenless: knows && f.token() == 0}
	err = k.release(ctx)
	if m, dies := k.(killable); dies {
		n.killed = m.killedAsOwner()
	}
	c.noted.add(n)
	return err
}

// ownerToken reads the owner's tenure from the server and checks it. It returns the tenure's token.
func (c *contest) ownerToken(ctx context.Context, k contender, owner string) (token uint64, err error) {
	f, knows := k.(fenced)
	token, ok, err := c.readToken(ctx, owner)
	if err == nil && !ok && knows && f.token() == 0 {
		// The owner may have got its token just now. A server takes an owner that takes no token for
		// the same owner before, if it has not read the row in between. Another server may have, and
		// then assigns a new token.
		token, ok, err = c.readToken(ctx, owner)
	}
	if err != nil {
		return 0, err
	}
	if knows && f.token() != 0 && f.token() != token {
		c.noted.breaks(oneToken, "%s has token %d, but SIMBA.OWNER returns %d", owner, f.token(), token)
	}
	if !ok {
		later, err := record(ctx, c.rdb, "simba.owner", c.mutex)
		c.noted.breaks(checked, "SIMBA.CHECK refuses token %d of %s; SIMBA.OWNER after that: %v, %v", token, owner, later, err)
	}
	return token, nil
}

// readToken reads the token of the owner's tenure, and whether SIMBA.CHECK passes it.
func (c *contest) readToken(ctx context.Context, owner string) (token uint64, ok bool, err error) {
	o, err := record(ctx, c.rdb, "simba.owner", c.mutex)
	if err != nil {
		return 0, false, err
	}
	if o == nil || o["owner"] != owner {
		return 0, false, fmt.Errorf("%s owns the mutex, but SIMBA.OWNER returns %v", owner, o)
	}
	token = uint64(o.Number("token"))
	n, err := c.rdb.Do(ctx, "simba.check", c.mutex, token).Int()
	return token, n == 1, err
}

func (c *contest) end() {
	c.t.Helper()
	c.running.Wait()
	c.noted.neverTwo(c.at.engine)
	c.noted.history(c.rdb, c.at.engine, c.mutex)
	c.t.Logf("tenures: %v", c.noted.count())
}

// simba is a contender that uses SIMBA.ACQUIRE.
type simba struct {
	rdb       *redis.Client
	mutex, id string
	lease     int64 // in milliseconds; 0 = the constant lease
}

func (k *simba) acquire(ctx context.Context) (string, error) {
	o, err := record(ctx, k.rdb, "simba.acquire", k.mutex, k.id, cmp.Or(k.lease, lease), "wait", 0)
	if err == nil && o["status"] != "acquired" {
		err = fmt.Errorf("SIMBA.ACQUIRE returns %v", o)
	}
	return k.id, err
}

func (k *simba) release(ctx context.Context) error {
	n, err := k.rdb.Do(ctx, "simba.release", k.mutex, k.id).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s has lost its lease", k.id)
	}
	return err
}

func (c *contest) enterSimba(contenders, rounds int, pause time.Duration) {
	c.t.Helper()
	for i := range contenders {
		c.enter(&simba{connect(c.t, c.server), c.mutex, fmt.Sprint("simba", i), c.lease}, rounds, pause)
	}
}
