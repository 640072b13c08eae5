package dropin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// meeting is a test of one mutex that contenders of Simba and ours share. Leases are so long that
// only a notice causes a grant in time.
type meeting struct {
	*testing.T
	at    *site
	gen   seeds.Generation
	mutex string
	rdb   *redis.Client // connected to our server
	store *redis.Client // connected to the store, which contenders of Simba use

	ctx context.Context // ends with the test
	end context.CancelFunc
}

// runs calls f in a goroutine. When the test ends, it cancels ctx, closes rdb, and waits for f.
func (m *meeting) runs(rdb *redis.Client, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	m.Cleanup(func() {
		m.end()
		rdb.Close()
		<-done
	})
}

func newMeeting(t *testing.T, at *site, gen seeds.Generation) *meeting {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), simbatest.Patience)
	t.Cleanup(cancel)
	mutex := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" {}", r) {
			return '-'
		}
		return r
	}, t.Name())
	mutex = mutex[max(0, len(mutex)-200):]
	return &meeting{t, at, gen, mutex, connect(t, at.servers[0]), connectTo(t, at.store), ctx, cancel}
}

func (m *meeting) must(err error) {
	m.Helper()
	simbatest.Must(m, err)
}

func (m *meeting) jvm(id string) *jvm { return m.jvmOf(m.gen, id) }

func (m *meeting) jvmOf(gen seeds.Generation, id string) *jvm {
	m.Helper()
	return newJVM(m.T, m.at.store, gen, m.mutex, id)
}

// owns makes a contender of Simba acquire the free mutex, and returns the contender.
func (m *meeting) owns(k *jvm) *jvm {
	m.Helper()
	owner, _, err := k.try(m.ctx)
	m.must(err)
	if owner != k.ID {
		m.Fatalf("%s cannot acquire a free mutex: the script returns the owner %q", k.ID, owner)
	}
	return k
}

// queues makes a contender of Simba wait for the mutex, and returns when it waits. The channel gets
// the result of the wait.
func (m *meeting) queues(k *jvm) (owns <-chan error) {
	m.Helper()
	got, waiting := make(chan error, 1), make(chan bool, 100)
	m.runs(k.rdb, func() {
		_, err := k.contend(m.ctx, func() {
			select {
			case waiting <- true:
			default:
			}
		})
		got <- err
	})
	comes(m, "the contender "+k.ID+" of Simba waits", waiting)
	return got
}

// takes acquires the free mutex for a contender of ours, and returns the token.
func (m *meeting) takes(id string) uint64 {
	m.Helper()
	o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, id, time.Hour.Milliseconds())
	m.must(err)
	if o["status"] != "acquired" {
		m.Fatalf("%s cannot acquire a free mutex: SIMBA.ACQUIRE returns %v", id, o)
	}
	return uint64(o.Number("token"))
}

// waits makes a client of ours wait, and returns when it is in the queue or owns the mutex. The
// channel gets the token of its tenure.
func (m *meeting) waits(id string) (owns <-chan uint64) {
	m.Helper()
	got := make(chan uint64, 1)
	rdb := connect(m.T, m.at.last())
	m.runs(rdb, func() {
		o, err := record(m.ctx, rdb, "simba.acquire", m.mutex, id, time.Hour.Milliseconds(), "wait", 0)
		if m.ctx.Err() != nil {
			return
		}
		if err != nil || o["status"] != "acquired" {
			m.Errorf("SIMBA.ACQUIRE … WAIT of %s returns %v, %v, want acquired", id, o, err)
			return
		}
		got <- uint64(o.Number("token"))
	})
	simbatest.Await(m, id+" is in the queue", func() bool {
		if len(got) > 0 {
			return true
		}
		queue, err := simbatest.ToRecords(m.rdb.Do(m.ctx, "simba.queue", m.mutex).Result())
		m.must(err)
		return slices.ContainsFunc(queue, func(q simbatest.Record) bool {
			return q["contender"] == id && q["kind"] == "blocked"
		})
	})
	return got
}

// awaitFirstRead waits until a server has read the mutex for a new waiter. Otherwise this read, and
// not a notice, might reveal the next change.
func (m *meeting) awaitFirstRead() { time.Sleep(500 * time.Millisecond) }

// comes fails the test unless the channel gets a value within the time soon, and the value is no
// error. The text what describes the value.
func comes[T any](m *meeting, what string, happens <-chan T) {
	m.Helper()
	select {
	case v := <-happens:
		if err, failed := any(v).(error); failed {
			m.Fatalf("%s: %v", what, err)
		}
	case <-time.After(soon):
		o, _ := record(m.ctx, m.rdb, "simba.owner", m.mutex)
		q, _ := m.rdb.Do(m.ctx, "simba.queue", m.mutex).Slice()
		key, _ := m.store.Get(m.ctx, seeds.Lease(m.mutex)).Result()
		m.Fatalf("after %v still not true: %s; SIMBA.OWNER: %v, owner in the store: %q, queue: %v", soon, what, o, key, q)
	}
}

func (m *meeting) owner(id string) (token uint64) {
	m.Helper()
	o, err := record(m.ctx, m.rdb, "simba.owner", m.mutex)
	m.must(err)
	if o == nil || o["owner"] != id {
		m.Fatalf("SIMBA.OWNER returns %v, want the owner %s", o, id)
	}
	return uint64(o.Number("token"))
}

func (m *meeting) check(token uint64) bool {
	m.Helper()
	n, err := m.rdb.Do(m.ctx, "simba.check", m.mutex, token).Int()
	m.must(err)
	return n == 1
}

// inOrder waits until the waiters own the mutex in the order of the list. Each releases it. Tokens
// must grow.
func (m *meeting) inOrder(all []<-chan uint64) {
	m.Helper()
	var last uint64
	for i, w := range all {
		comes(m, fmt.Sprintf("waiter %d owns it", i), w)
		token := m.owner(fmt.Sprint("ours", i))
		if token <= last {
			m.Errorf("waiter %d has token %d, want more than %d", i, token, last)
		}
		last = token
		is(m, m.rdb, int64(1), "simba.release", m.mutex, fmt.Sprint("ours", i))
	}
}
