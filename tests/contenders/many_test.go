package contenders

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Many contenders of ten Clients want the same hundred mutexes at once. Each gets its own once.
func TestManyContendersGetTheirMutexes(t *testing.T) {
	const clients, mutexes = 10, 100
	contenders := simbatest.Count(1_000, 10_000)
	s := simbatest.Start(t)
	all := make([]*client.Client, clients)
	for i := range all {
		all[i] = newClient(t, s.Addr)
	}
	var inside [mutexes]atomic.Int64
	var tenures [mutexes]int
	var ended sync.WaitGroup
	for i := range contenders {
		ended.Go(func() {
			m := i % mutexes
			err := all[i/mutexes%clients].Do(t.Context(), fmt.Sprint("many", m), func(context.Context) error {
				if n := inside[m].Add(1); n != 1 {
					t.Errorf("%d contenders own mutex %d at a time", n, m)
				}
				tenures[m]++
				inside[m].Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	for m, n := range tenures {
		if n != contenders/mutexes {
			t.Errorf("mutex %d had %d tenures, want %d", m, n, contenders/mutexes)
		}
	}
	for _, c := range all {
		simbatest.Must(t, c.Close())
	}
	if n := simbatest.Do(t, simbatest.Conn(t, s), "DBSIZE"); n != int64(0) {
		t.Errorf("the server keeps %v mutexes, want none", n)
	}
}
