package mysql

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Each failed request replaces the pool's connections. A lost connection would never be closed and
// would keep its slot in the pool.
func TestConcurrentFailuresLoseNoConnection(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, nil)
	for range 100 {
		var all sync.WaitGroup
		conns := make([]*sql.Conn, maxConns)
		for i := range conns {
			all.Go(func() {
				var err error
				if conns[i], err = b.store.db.Conn(deadline(t)); err != nil {
					t.Errorf("Conn: %v; want no error", err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		for i, c := range conns {
			all.Go(func() {
				_ = c.Close()
				if i%4 == 0 {
					_ = b.store.fail(errNotPrimary)
				}
			})
		}
		all.Wait()
	}
	await(t, "no connection is open", func() bool {
		_ = b.store.fail(errNotPrimary) // again, because the check of the settings opens connections too
		return b.store.db.Stats().OpenConnections == 0
	})
}
