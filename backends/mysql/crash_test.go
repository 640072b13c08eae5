package mysql

import (
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

func TestDatabaseCrashLosesNothingAcknowledged(t *testing.T) {
	store := stores.MariaDB(t, "--innodb-flush-log-at-trx-commit=1", "--log-bin=binlog", "--sync-binlog=1")
	e := suiteEngine(t, store)
	e.Open = e.Direct
	backendtest.Crash(t, e, 4, store.Kill, store.Start)
}
