package tests

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver
)

// The statements of Simba's JDBC backend, as its documentation prints them, with the
// database's clock for NOW_MS.
const (
	simbaNow = "CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(3)) * 1000 AS UNSIGNED)"

	simbaUpdate = "UPDATE simba_mutex SET acquired_at = " + simbaNow + ", ttl_at = " + simbaNow + " + ?, transition_at = " + simbaNow + " + ?," +
		" owner_id = ?, version = version + 1 WHERE mutex = ? AND ((transition_at < " + simbaNow + ") OR (owner_id = ? AND transition_at > " + simbaNow + "))"
	simbaSelect = "SELECT owner_id, transition_at, version, " + simbaNow + " FROM simba_mutex WHERE mutex = ?"
	simbaClear  = "UPDATE simba_mutex SET acquired_at=0, ttl_at=0, transition_at=0, owner_id='', version=version+1 WHERE mutex = ? AND owner_id = ?"
)

// mysqlContender does what one of Simba's contenders does, on a connection of its own.
type mysqlContender struct {
	b         *testing.B
	db        *sql.DB
	mutex, id string
}

func directMySQL(b *testing.B, s *shared) connector {
	db, err := sql.Open("mysql", s.dsn()+"?interpolateParams=true")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(benchClients)
	db.SetMaxIdleConns(benchClients)
	for _, statement := range []string{
		"CREATE DATABASE IF NOT EXISTS direct",
		"CREATE TABLE IF NOT EXISTS direct.simba_mutex (mutex VARCHAR(66) NOT NULL PRIMARY KEY, acquired_at BIGINT UNSIGNED NOT NULL," +
			" ttl_at BIGINT UNSIGNED NOT NULL, transition_at BIGINT UNSIGNED NOT NULL, owner_id CHAR(32) NOT NULL, version INT UNSIGNED NOT NULL)",
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	direct, err := sql.Open("mysql", "root@tcp("+s.store.Addr+")/direct?interpolateParams=true")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { direct.Close() })
	direct.SetMaxOpenConns(benchClients)
	direct.SetMaxIdleConns(benchClients)
	return func(b *testing.B, mutex, id string, _ bool) contender {
		b.Helper()
		if _, err := direct.ExecContext(b.Context(), "INSERT IGNORE INTO simba_mutex VALUES (?, 0, 0, 0, '', 0)", mutex); err != nil {
			b.Fatal(err)
		}
		return &mysqlContender{b, direct, mutex, id}
	}
}

func (c *mysqlContender) pair(stop <-chan struct{}) error {
	for {
		owner, wait, err := c.attempt()
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if owner == c.id {
			break
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-stop:
			next.Stop()
			return nil
		}
	}
	_, err := c.db.ExecContext(c.b.Context(), simbaClear, c.mutex, c.id)
	return err
}

// attempt is acquireAndGetOwner, and the delay that a contender which lost takes.
func (c *mysqlContender) attempt() (owner string, wait time.Duration, err error) {
	tx, err := c.db.BeginTx(c.b.Context(), nil)
	if err != nil {
		return "", 0, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(c.b.Context(), simbaUpdate, benchLease, benchLease, c.id, c.mutex, c.id); err != nil {
		return "", 0, err
	}
	var transitionAt, version, now int64
	if err := tx.QueryRowContext(c.b.Context(), simbaSelect, c.mutex).Scan(&owner, &transitionAt, &version, &now); err != nil {
		return "", 0, err
	}
	ms := transitionAt - now + rand.Int64N(1000) // the jitter of leases without a transition window
	return owner, time.Duration(max(ms, 0)) * time.Millisecond, tx.Commit()
}

func (c *mysqlContender) close() {}
