package clients

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// There are more transactions than scripts that may run at a time, so some must wait.
func TestTransactionsOfLongScriptsAreAllExecuted(t *testing.T) {
	s := simbatest.Start(t, "--durability", "memory")
	const clients, long = 16, "for i = 1, 200000 do end return 1"
	done := make(chan error)
	for range clients {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: simbatest.Patience})
		t.Cleanup(func() { c.Close() })
		go func() {
			_, err := c.TxPipelined(t.Context(), func(p goredis.Pipeliner) error {
				for range 3 {
					p.Eval(t.Context(), long, nil)
				}
				return nil
			})
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
