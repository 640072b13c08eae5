// Package seeds has the requests that other lock libraries for the JVM send to a store. They are
// the scripts of Simba's Redis backend and of Spring's RedisLockRegistry, and the statements of
// Simba's JDBC backend. Tests let such clients contend with simba-resp, and benchmarks compare the
// two.
package seeds

import _ "embed" // for the scripts

// Scripts of Simba before 3.2, from its documentation. KEYS[1] is the lock key. ARGV are the
// contender's id, and the milliseconds until the end of its transition window.
var (
	//go:embed simba_acquire.lua
	SimbaAcquire string
	//go:embed simba_guard.lua
	SimbaGuard string
	//go:embed simba_release.lua
	SimbaRelease string
)

// Scripts of Spring's RedisLockRegistry. KEYS[1] is the lock key. ARGV are the client's id and, in
// the script that obtains the lock, the milliseconds of the lease.
var (
	//go:embed spring_obtain.lua
	SpringObtain string
	//go:embed spring_unlink.lua
	SpringUnlink string
	//go:embed spring_delete.lua
	SpringDelete string
)

// Statements of Simba's JDBC backend, from its documentation. Its placeholder NOW_MS is replaced by
// the database's clock in milliseconds. An acquire is the update and then the read, in one
// transaction.
const (
	// MySQLTable is the statement of init-simba-mysql.sql.
	MySQLTable = `CREATE TABLE IF NOT EXISTS simba_mutex (
    mutex         VARCHAR(66)    NOT NULL PRIMARY KEY COMMENT 'mutex name',
    acquired_at   BIGINT UNSIGNED NOT NULL,
    ttl_at        BIGINT UNSIGNED NOT NULL,
    transition_at BIGINT UNSIGNED NOT NULL,
    owner_id      CHAR(32)       NOT NULL,
    version       INT UNSIGNED   NOT NULL
)`
	// MySQLFencedTable is the table of Simba 3.3 and later, and the default of 4.0. Since 3.1.3
	// owner_id has 128 characters.
	MySQLFencedTable = `CREATE TABLE IF NOT EXISTS simba_mutex (
    mutex         VARCHAR(66)    NOT NULL PRIMARY KEY COMMENT 'mutex name',
    acquired_at   BIGINT UNSIGNED NOT NULL,
    ttl_at        BIGINT UNSIGNED NOT NULL,
    transition_at BIGINT UNSIGNED NOT NULL,
    owner_id      VARCHAR(128)   NOT NULL,
    version       INT UNSIGNED   NOT NULL,
    fencing_token BIGINT UNSIGNED NOT NULL DEFAULT 0
)`
	// MySQLInit adds the row of a mutex. Its argument is the mutex.
	MySQLInit = `INSERT IGNORE INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version)
		VALUES (?, 0, 0, 0, '', 0)`

	mysqlNow = "cast(unix_timestamp(current_timestamp(3)) * 1000 as unsigned)"

	// MySQLAcquire has these arguments: ttl and ttl + transition in ms, owner, mutex, and owner
	// again.
	MySQLAcquire = `UPDATE simba_mutex
		SET acquired_at = ` + mysqlNow + `, ttl_at = ` + mysqlNow + ` + ?, transition_at = ` + mysqlNow + ` + ?,
		    owner_id = ?, version = version + 1
		WHERE mutex = ? AND ((transition_at < ` + mysqlNow + `) OR (owner_id = ? AND transition_at > ` + mysqlNow + `))`
	// MySQLFencedAcquire has the effect of the update of Simba 3.3 and later: a new tenure adds 1
	// to fencing_token, a renewal keeps it. MySQL assigns from left to right, so the assignment
	// that depends on the old owner comes first. The statement has these arguments: owner, ttl and
	// ttl + transition in ms, owner, mutex, and owner again.
	MySQLFencedAcquire = `UPDATE simba_mutex
		SET fencing_token = fencing_token + IF(owner_id = ? AND transition_at > ` + mysqlNow + `, 0, 1),
		    acquired_at = ` + mysqlNow + `, ttl_at = ` + mysqlNow + ` + ?, transition_at = ` + mysqlNow + ` + ?,
		    owner_id = ?, version = version + 1
		WHERE mutex = ? AND ((transition_at < ` + mysqlNow + `) OR (owner_id = ? AND transition_at > ` + mysqlNow + `))`
	// MySQLFencedGet has the mutex as its argument. It returns owner, version, transition_at, the
	// database's time in ms, and the token.
	MySQLFencedGet = `SELECT owner_id, version, transition_at, ` + mysqlNow + `, fencing_token FROM simba_mutex WHERE mutex = ?`
	// MySQLGet has the mutex as its argument. It returns owner, version, transition_at, and the
	// database's time in ms.
	MySQLGet = `SELECT owner_id, version, transition_at, ` + mysqlNow + ` FROM simba_mutex WHERE mutex = ?`
	// MySQLRelease has these arguments: mutex and owner.
	MySQLRelease = `UPDATE simba_mutex
		SET acquired_at = 0, ttl_at = 0, transition_at = 0, owner_id = '', version = version + 1
		WHERE mutex = ? AND owner_id = ?`
)
