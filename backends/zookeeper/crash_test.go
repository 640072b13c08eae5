package zookeeper_test

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
)

// The session is so long that it outlives the crash also where a JVM takes its time to start: else its leases end.
func TestEnsembleCrashLosesNothingAcknowledged(t *testing.T) {
	srv := stores.ZooKeeper(t, "forceSync=yes")
	open := func(t testing.TB, n simba.Notices, timeout time.Duration) backendtest.Backend {
		t.Helper()
		return openSoon(t, zookeeper.Options{Servers: srv.Addr, Notices: n, Timeout: timeout, SessionTimeout: time.Minute})
	}
	e := backendtest.Engine{Name: "zookeeper", Shared: true, Timeout: suiteTimeout, Open: open}
	backendtest.Crash(t, e, 3, srv.Kill, srv.Start)
}
