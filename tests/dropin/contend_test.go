package dropin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// lease is one that a busy machine does not lose, in milliseconds.
const lease = 30_000

// early bounds a wait for a turn, which others may have first, and which must not last until a lease ends.
const early = lease * 2 / 3 * time.Millisecond

// soon bounds a wait that must not last until a lease ends, nor until a server looks after those that wait
// there by itself, every 10 s. It is generous, for busy machines.
const soon = 6 * time.Second

// contender wants a mutex again and again.
type contender interface {
	// acquire returns when the contender has the mutex, and the value that it has it by.
	acquire(ctx context.Context) (owner string, err error)
	release(ctx context.Context) error
}

// fenced is a contender that knows the token of the tenure that it acquired last; 0 = it was told none.
type fenced interface{ token() uint64 }

// mortal is a contender that may be killed when it has the mutex. It does not release it then.
type mortal interface{ killedAsOwner() bool }

// site is where contenders meet: servers of one engine, and the address at which those that do not know
// the servers contend. That is the address of the store, and of an embedded engine its server's.
type site struct {
	engine  string
	servers []*simbatest.Server
	store   string
}

// newSite starts servers of an engine with one store. An embedded engine has one server.
func newSite(t testing.TB, engine string, servers int) *site {
	t.Helper()
	at := &site{engine: engine}
	var flags []string
	at.store, flags = simbatest.Store(t, engine)
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

// last is the server that the second client of ours asks.
func (at *site) last() *simbatest.Server { return at.servers[len(at.servers)-1] }

// contest is some contenders' for a mutex.
type contest struct {
	t       *testing.T
	at      *site
	server  *simbatest.Server // the first of the site
	mutex   string
	rdb     *redis.Client // of the witness
	noted   tenures
	running sync.WaitGroup

	// patience is how long a contender waits for a turn at most. It is shorter than the lease where that must not
	// end before somebody else owns the mutex.
	patience time.Duration

	// blind means that nobody asks the server who owns the mutex: SIMBA.* does not take its name.
	blind bool
}

func newContest(t *testing.T, mutex string) *contest {
	t.Helper()
	return newContestAt(t, newSite(t, "embedded", 1), mutex)
}

func newContestAt(t *testing.T, at *site, mutex string) *contest {
	t.Helper()
	return &contest{
		t: t, at: at, server: at.servers[0], mutex: mutex, rdb: connect(t, at.servers[0]),
		patience: simbatest.Patience,
	}
}

// enter has a contender take that many turns, with a pause after each.
func (c *contest) enter(k contender, turns int, pause time.Duration) {
	c.running.Go(func() {
		for n := 0; n < turns && c.goesOn(k, n); n++ {
			time.Sleep(pause)
		}
	})
}

// enterUntil has a contender take turns until done is closed, with pauses of different lengths. It runs as
// one of running. On a busy machine a turn takes longer, and so does the pause, or the queue would never be
// empty: then who has no place in it gets no turn.
func (c *contest) enterUntil(running *sync.WaitGroup, k contender, done <-chan struct{}, most time.Duration) {
	running.Go(func() {
		began := time.Now()
		for n := 0; c.goesOn(k, n); n++ {
			select {
			case <-done:
				return
			case <-time.After(rand.N(most + min(10*time.Since(began), time.Second/2))):
			}
			began = time.Now()
		}
	})
}

// goesOn has a contender take its turn number n, and reports whether it did.
func (c *contest) goesOn(k contender, n int) bool {
	err := c.turn(k)
	if err != nil {
		c.noted.breaks(turnsCome, "turn %d of %T: %v", n, k, err)
	}
	return err == nil
}

func (c *contest) turn(k contender) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), simbatest.Patience)
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	owner, err := k.acquire(waiting)
	if err != nil {
		return err
	}
	from := clock()
	token, err := c.look(ctx, k, owner)
	if err != nil {
		return err
	}
	f, knows := k.(fenced)
	n := tenure{owner: owner, kind: fmt.Sprintf("%T", k), untold: knows && f.token() == 0, token: token, from: from, to: clock()}
	err = k.release(ctx)
	if m, dies := k.(mortal); dies {
		n.killed = m.killedAsOwner()
	}
	c.noted.add(n)
	return err
}

// look asks the server for the tenure of a contender that owns the mutex, and returns its token.
func (c *contest) look(ctx context.Context, k contender, owner string) (token uint64, err error) {
	f, knows := k.(fenced)
	if c.blind {
		if knows {
			token = f.token()
		}
		return token, nil
	}
	o, err := record(ctx, c.rdb, "simba.owner", c.mutex)
	if err != nil {
		return 0, err
	}
	if o == nil || o["owner"] != owner {
		return 0, fmt.Errorf("%s has it, and by the server the owner is %v", owner, o)
	}
	token = uint64(o["token"].(int64))
	if knows && f.token() != 0 && f.token() != token {
		c.noted.breaks(oneToken, "%s has token %d, and by the server it is %d", owner, f.token(), token)
	}
	ok, err := c.rdb.Do(ctx, "simba.check", c.mutex, token).Int()
	if err == nil && ok != 1 {
		later, err := record(ctx, c.rdb, "simba.owner", c.mutex)
		c.noted.breaks(checked, "the token of %s does not; before it was %v, and after it %v, %v", owner, o, later, err)
	}
	return token, err
}

// end waits until all have had their turns, and has a subtest for each rule.
func (c *contest) end() {
	c.t.Helper()
	c.running.Wait()
	c.noted.neverTwo(c.at.engine)
	if !c.blind {
		c.noted.history(c.t, c.rdb, c.at.engine, c.mutex)
	}
	c.t.Logf("turns: %v", c.noted.count())
	c.noted.tell(c.t)
}

// simba is a contender that knows SIMBA.ACQUIRE.
type simba struct {
	rdb       *redis.Client
	mutex, id string
}

func (k *simba) acquire(ctx context.Context) (string, error) {
	o, err := record(ctx, k.rdb, "simba.acquire", k.mutex, k.id, lease, "wait", 0)
	if err == nil && o["status"] != "acquired" {
		err = fmt.Errorf("simba.acquire: %v", o)
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

// enterSimba has contenders enter that know SIMBA.ACQUIRE.
func (c *contest) enterSimba(contenders, turns int, pause time.Duration) {
	c.t.Helper()
	for i := range contenders {
		c.enter(&simba{connect(c.t, c.server), c.mutex, fmt.Sprint("simba", i)}, turns, pause)
	}
}
