package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// The session timeout is longer than the crash, even if the JVM starts slowly. Otherwise the
// sessions and their leases would end.
func TestEnsembleCrashLosesNothingAcknowledged(t *testing.T) {
	srv := stores.ZooKeeper(t, "forceSync=yes")
	open := func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
		t.Helper()
		return openSoon(t, Options{Servers: srv.Addr, SessionTimeout: time.Minute, Options: proxy.Options{Notices: n, Timeout: timeout}})
	}
	e := conformance.Engine{Name: "zookeeper", Shared: true, Timeout: suiteTimeout, Open: open}
	conformance.Crash(t, e, 3, srv.Kill, srv.Start)
}
