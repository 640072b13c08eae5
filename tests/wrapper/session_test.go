package wrapper

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// newSharedWorlds returns two worlds with a server each. Both servers use a ZooKeeper that grants
// sessions of 10 s, although the servers ask for 30 s. So it vouches for leases of 5 s.
func newSharedWorlds(t *testing.T) (one, two *world) {
	t.Helper()
	t.Parallel()
	zk := stores.ZooKeeper(t, "maxSessionTimeout=10000")
	flags := []string{"--engine", "zookeeper", "--zookeeper-servers", zk.Addr, "--backend-timeout", "10s"}
	one = &world{t, simbatest.Start(t, flags...), t.TempDir() + "/moments"}
	two = &world{t, simbatest.Start(t, flags...), one.file}
	return one, two
}

// After the restart, the first wrapper can reach its server again, but must not renew the lease. It
// belongs to the session of the killed process.
func TestRestartedServerOfAShortSessionNeverRunsTwoCommandsAtOnce(t *testing.T) {
	one, two := newSharedWorlds(t)
	a := one.lock(one.worker("--stubborn"))
	one.started(a)
	b := two.lock(two.worker())
	two.awaitQueued(1)
	time.Sleep(2 * time.Second) // the lease was renewed
	one.server.Restart()
	two.started(b)
	one.wantsCode(a, exitLost)
	two.endsAsSecond(b)
}

func TestLeaseFlagsThatAShortSessionDoesNotVouchForAreRefused(t *testing.T) {
	one, _ := newSharedWorlds(t)
	for _, flags := range [][]string{{"--ttl", "10s", "--grace", "5s"}, {"--ttl", "10s"}, {"--grace", "4500ms"}} {
		p := one.lock(sh("echo ran"), flags...)
		one.wantsCode(p, exitUsage)
		p.Wants(t, `at most 5s, .*; see zookeeper-session-timeout`)
	}
	p := one.lock(sh("echo ran"), "--ttl", "2s")
	one.wantsCode(p, 0)
	p.Wants(t, `using --ttl 2s --grace 3s`)
	status := simbatest.Run(t, simbatest.Binary(t), "status", "--url", one.url())
	one.wantsCode(status, 0)
	status.Wants(t, `^longest lease +5\.?0?s, half of the session timeout`)
	c := simbatest.Conn(t, one.server)
	if _, err := c.Do("SIMBA.ACQUIRE", "m", "a", 60000); err == nil || !strings.Contains(err.Error(), "5000 ms") || !strings.Contains(err.Error(), "zookeeper-session-timeout") {
		t.Errorf("ACQUIRE with 60000 returns %v, want an error that names 5000 ms and zookeeper-session-timeout", err)
	}
}
