package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers the driver "mysql"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// mysqlContender sends the statements of Simba's JDBC contender, on its own connection.
type mysqlContender struct {
	db        *sql.DB // shared by all contenders
	conn      *sql.Conn
	mutex, id string
	ctx       context.Context // when it ends, a waiting request fails
	end       context.CancelFunc
}

// toMySQL creates the database "direct", and returns a connector that uses it.
func toMySQL(tb *testbed, addr string) (connector, error) {
	timeouts := fmt.Sprintf("timeout=%v&readTimeout=%[1]v&writeTimeout=%[1]v", patience)
	root, err := sql.Open("mysql", "root@tcp("+addr+")/?"+timeouts)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if _, err := root.Exec("CREATE DATABASE IF NOT EXISTS direct"); err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", "root@tcp("+addr+")/direct?interpolateParams=true&"+timeouts)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { db.Close() })
	if _, err := db.Exec(seeds.MySQLTable); err != nil {
		return nil, err
	}
	return func(mutex, id string, _ bool) (contender, error) {
		c := &mysqlContender{db: db, mutex: mutex, id: id}
		c.ctx, c.end = context.WithTimeout(context.Background(), lifetime())
		conn, err := db.Conn(c.ctx)
		if err != nil {
			c.end()
			return nil, err
		}
		c.conn = conn
		if _, err := conn.ExecContext(c.ctx, seeds.MySQLInit, mutex); err != nil {
			c.close()
			return nil, err
		}
		return c, nil
	}, nil
}

func (c *mysqlContender) acquire() error {
	for {
		owner, wait, err := c.attempt()
		if err != nil || owner == c.id {
			return err
		}
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// attempt works like acquireAndGetOwner of Simba. If another contender owns the mutex, wait is the
// time until the next attempt.
func (c *mysqlContender) attempt() (owner string, wait time.Duration, err error) {
	tx, err := c.conn.BeginTx(c.ctx, nil)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	ms := lease.Milliseconds()
	if _, err := tx.ExecContext(c.ctx, seeds.MySQLAcquire, ms, ms, c.id, c.mutex, c.id); err != nil {
		return "", 0, err
	}
	var transitionAt, version, now int64
	if err := tx.QueryRowContext(c.ctx, seeds.MySQLGet, c.mutex).Scan(&owner, &version, &transitionAt, &now); err != nil {
		return "", 0, err
	}
	// Simba adds this jitter to leases without a transition window.
	left := transitionAt - now + rand.Int64N(1000)
	return owner, time.Duration(max(left, 0)) * time.Millisecond, tx.Commit()
}

func (c *mysqlContender) release() error {
	_, err := c.conn.ExecContext(c.ctx, seeds.MySQLRelease, c.mutex, c.id)
	return err
}

func (c *mysqlContender) close() {
	c.end()
	c.conn.Close()
}
