package abuse

import (
	"fmt"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bystander is a well-behaved client. Again and again it acquires and releases two mutexes: one
// that all bystanders share, and one of its own.
type bystander struct {
	v      *victim
	name   string
	conn   redis.Conn
	rounds atomic.Int64
	stop   atomic.Bool
	ended  chan struct{}
}

// A bystander's lease is so long that it ends only by RELEASE, also on a busy machine.
const bystanderTTL = 3_600_000 // ms

// shared is the mutex that all bystanders of a victim share.
type shared struct {
	inside atomic.Int32 // the number of present owners
	token  atomic.Int64 // the token of the last tenure
}

// bystanders starts three bystanders. They end with the test.
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

// dismiss stops the bystanders.
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

// round acquires and releases both mutexes. It checks that no other bystander owns the shared one
// between the reply to ACQUIRE and the request RELEASE.
func (b *bystander) round(mutex *shared) error {
	token, err := b.acquire("wanted", "WAIT", 0)
	if err != nil {
		return err
	}
	if n := mutex.inside.Add(1); n != 1 {
		return fmt.Errorf("the shared mutex has %d owners at a time", n)
	}
	if last := mutex.token.Swap(token); last >= token {
		return fmt.Errorf("the token is %d, want more than the last one, %d", token, last)
	}
	if _, err := b.acquire(b.name, "NOQUEUE"); err != nil {
		return err
	}
	mutex.inside.Add(-1)
	for _, name := range []string{"wanted", b.name} {
		if n, err := redis.Int(b.conn.Do("SIMBA.RELEASE", name, b.name)); err != nil || n != 1 {
			return fmt.Errorf("RELEASE returns %d, %v", n, err)
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
		return 0, fmt.Errorf("ACQUIRE of %s returns %v", name, r)
	}
	return r.Number("token"), nil
}

// servesOthers waits until every bystander has done some more rounds. If one does not, the test
// fails.
func (v *victim) servesOthers() {
	v.t.Helper()
	const times = 5
	for _, b := range v.others {
		from := b.rounds.Load()
		v.until("served others", func() bool {
			select {
			case <-b.ended:
				v.t.Fatalf("the bystander %s has stopped after an error", b.name)
			default:
			}
			return b.rounds.Load() >= from+times
		})
	}
}
