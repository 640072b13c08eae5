package stores

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The test also checks that the old primary refuses writes on its open connections.
func TestMariaDBFailoverLosesNoAcknowledgedWrite(t *testing.T) {
	p := NewMariaDBPair(t)
	open := func() *sql.DB {
		db, err := sql.Open("mysql", p.DSN(p.Link().Addr()))
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	first := open()
	defer first.Close()
	if _, err := first.Exec("CREATE TABLE x (client INT, n INT, PRIMARY KEY (client, n)) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	const clients = 8
	var acknowledged [clients]atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	for client := range clients {
		all.Go(func() {
			db := open()
			defer func() { db.Close() }()
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// A failed write may have been done, so its number is not used again.
				if _, err := db.Exec("INSERT INTO x VALUES (?, ?)", client, n); err == nil {
					acknowledged[client].Add(1)
					continue
				}
				db.Close()
				db = open()
			}
		})
	}
	for round := range 3 {
		time.Sleep(200 * time.Millisecond) // time for some load
		kept, err := first.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old := p.Primary()
		p.Failover()
		if p.Primary() == old {
			t.Fatal("Failover did not change the primary")
		}
		if _, err := kept.ExecContext(t.Context(), "INSERT INTO x VALUES (-1, ?)", round); err == nil {
			t.Error("the old primary took a write")
		}
		var readOnly bool
		if err := kept.QueryRowContext(t.Context(), "SELECT @@GLOBAL.read_only").Scan(&readOnly); err != nil || !readOnly {
			t.Errorf("the old primary on its old connection: read_only is %v, %v; want true", readOnly, err)
		}
		kept.Close()
		first.Close()
		first = open()
		if round == 1 { // a restart changes no role
			p.Other().Kill()
			p.Other().Start()
		}
		p.Rejoin()
	}
	await(t, "each client has written", func() bool {
		for client := range clients {
			if acknowledged[client].Load() == 0 {
				return false
			}
		}
		return true
	})
	close(stop)
	all.Wait()
	for client := range clients {
		var n int64
		if err := first.QueryRow("SELECT COUNT(*) FROM x WHERE client = ?", client).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if want := acknowledged[client].Load(); n < want || want == 0 {
			t.Errorf("client %d: the table has %d rows, want all %d acknowledged writes", client, n, want)
		}
	}
}
