package main

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// mute returns an address at which the kernel accepts connections, but no server reads them.
func mute(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

func TestARequestToAServerThatHangsFails(t *testing.T) {
	w, err := dial(mute(t), 50*time.Millisecond)
	must(t, err)
	defer w.close()
	if got, err := w.ask(frame("PING")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ask returns %q, %v, want os.ErrDeadlineExceeded", got, err)
	}
}

func TestALoadOnAServerThatHangsFailsAtItsConnect(t *testing.T) {
	oldPatience, oldDuring := patience, *during
	t.Cleanup(func() { patience, *during = oldPatience, oldDuring })
	patience, *during = 50*time.Millisecond, 0
	addr := mute(t)
	for name, connect := range map[string]connector{"Redis": toRedis(addr), "ZooKeeper": toZooKeeper(addr), "etcd": toEtcd(addr)} {
		t.Run(name, func(t *testing.T) {
			if c, err := connect("m", "c", true); err == nil {
				c.close()
				t.Error("the connector returns no error, although the server does not reply")
			}
		})
	}
	t.Run("handoff", func(t *testing.T) {
		if took, err := handOff([2]string{addr, addr}, time.Second); err == nil {
			t.Errorf("handOff returns %v, although the server does not reply", took)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		tb := new(testbed)
		defer tb.cleanUp()
		if _, err := toMySQL(tb, addr); err == nil {
			t.Error("the connector returns no error, although the server does not reply")
		}
	})
	t.Run("redis-benchmark", func(t *testing.T) {
		need.Program(t, "redis-benchmark", "redis-tools")
		if rate, err := redisBenchmark(addr, []string{"PING"}); err == nil {
			t.Errorf("redisBenchmark returns a rate of %v, although the server does not reply", rate)
		}
	})
}

func TestAPipelineToAServerThatHangsFails(t *testing.T) {
	ping := func(int) []byte { return frame("PING") }
	if err := pipe(mute(t), 10, ping, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("pipe returns %v, want os.ErrDeadlineExceeded", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
