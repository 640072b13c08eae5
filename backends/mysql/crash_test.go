package mysql

import (
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestDatabaseCrashLosesNothingAcknowledged(t *testing.T) {
	store := stores.MariaDB(t, "--innodb-flush-log-at-trx-commit=1", "--log-bin=binlog", "--sync-binlog=1")
	e := suiteEngine(t, store)
	e.Open = e.Direct
	conformance.Crash(t, e, 4, store.Kill, store.Start)
}
