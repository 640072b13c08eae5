package abuse

import (
	"fmt"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bystander is a well-behaved client. Again and again it acquires and releases two mutexes: one
// shared by all bystanders, and its own.
type bystander struct {
	v      *victim
	name   string
	conn   redis.Conn
	rounds atomic.Int64
	stop   atomic.Bool
	ended  chan struct{}
}

// bystanderTTL is so long that a lease ends only by RELEASE, also on a busy machine.
const bystanderTTL = 3_600_000 // ms

type shared struct {
	inside atomic.Int32 // number of current owners
	token  atomic.Int64 // token of the last tenure
}

// bystanders starts three bystanders, which stop with the test.
func (v *victim) bystanders() {
	v.t.Helper()
	var mutex shared
	for i := range 3 {
		b := &bystander{v: v, name: fmt.Sprint("bystander", i), conn: v.client(), ended: make(chan struct{})}
		v.others = append(v.others, b)
		go b.work(&mutex)
	}
	v.t.Cleanup(v.dismiss)
}

func (v *victim) dismiss() {
	for _, b := range v.others {
		b.stop.Store(true)
	}
	for _, b := range v.others {
		<-b.ended
	}
	v.others = nil
}

func (b *bystander) work(mutex *shared) {
	defer close(b.ended)
	defer b.conn.Close()
	for !b.stop.Load() {
		if err := b.round(mutex); err != nil {
			b.v.t.Errorf("%s: %v", b.name, err)
			return
		}
		b.rounds.Add(1)
	}
}

// round acquires and releases both mutexes. It checks that no other bystander owns the shared mutex
// from the reply to ACQUIRE until RELEASE.
func (b *bystander) round(mutex *shared) error {
	token, err := b.acquire("wanted", "WAIT", 0)
	if err != nil {
		return err
	}
	if n := mutex.inside.Add(1); n != 1 {
		return fmt.Errorf("the shared mutex has %d owners at the same time", n)
	}
	if last := mutex.token.Swap(token); last >= token {
		return fmt.Errorf("SIMBA.ACQUIRE returns the token %d, want more than %d, the last one", token, last)
	}
	if _, err := b.acquire(b.name, "NOQUEUE"); err != nil {
		return err
	}
	mutex.inside.Add(-1)
	for _, name := range []string{"wanted", b.name} {
		if n, err := redis.Int(b.conn.Do("SIMBA.RELEASE", name, b.name)); err != nil || n != 1 {
			return fmt.Errorf("SIMBA.RELEASE returns %d, %v, want 1", n, err)
		}
	}
	return nil
}

func (b *bystander) acquire(name string, options ...any) (token int64, err error) {
	r, err := simbatest.ToRecord(b.conn.Do("SIMBA.ACQUIRE", append([]any{name, b.name, bystanderTTL}, options...)...))
	if err != nil {
		return 0, err
	}
	if r["status"] != "acquired" {
		return 0, fmt.Errorf("SIMBA.ACQUIRE of %s returns %v, want acquired", name, r)
	}
	return r.Number("token"), nil
}

// servesOthers waits until each bystander has completed five more rounds. If one does not, the test
// fails.
func (v *victim) servesOthers() {
	v.t.Helper()
	const times = 5
	for _, b := range v.others {
		from := b.rounds.Load()
		v.until(b.name+" is served", func() bool {
			select {
			case <-b.ended:
				v.t.Fatalf("the bystander %s has stopped after an error", b.name)
			default:
			}
			return b.rounds.Load() >= from+times
		})
	}
}
