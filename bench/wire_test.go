package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// mute is a server that accepts and never answers. Its kernel accepts for it.
func mute(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

func TestARequestToAServerThatHangsFails(t *testing.T) {
	w, err := dial(mute(t), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if got, err := w.ask(frame("PING")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it answers %q, %v", got, err)
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
				t.Error("it is connected")
			}
		})
	}
	t.Run("MariaDB", func(t *testing.T) {
		tb := new(testbed)
		defer tb.cleanUp()
		if _, err := toMySQL(tb, addr); err == nil {
			t.Error("it is connected")
		}
	})
	t.Run("redis-benchmark", func(t *testing.T) {
		if _, err := exec.LookPath("redis-benchmark"); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip("redis-benchmark is not installed")
		}
		if rate, err := redisBenchmark(addr, []string{"PING"}); err == nil {
			t.Errorf("it makes %v a second", rate)
		}
	})
}

func TestAPipelineToAServerThatHangsFails(t *testing.T) {
	ping := func(int) []byte { return frame("PING") }
	if err := pipe(mute(t), 10, ping, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
}
