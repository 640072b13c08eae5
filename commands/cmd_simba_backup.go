package commands

import (
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

var simbaBackupRow = command{
	name: "simba.backup", arity: -2, since: "0.1.0",
	summary: "A container for the commands that copy the data of a running server",
	subs: []command{
		{
			name: "begin", arity: 2, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupBegin,
			summary: "Begins a consistent copy, which ends with the connection",
		},
		{
			name: "read", arity: 3, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupRead,
			summary: "Returns the next bytes of the copy, none at its end",
			args:    "offset",
		},
		{
			name: "end", arity: 2, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupEnd,
			summary: "Ends the copy, and returns 0 if there was none",
		},
	},
}

// Backup is a consistent copy of the engine's data, as a stream.
type Backup interface {
	// Next returns the next bytes of the stream. After the last byte it returns io.EOF.
	Next() ([]byte, error)
	// Close ends the copy. A second Close has no effect.
	Close() error
}

// backups lets only one connection at a time have a backup.
type backups struct {
	log *slog.Logger

	owner atomic.Uint64 // the id of the connection; 0 = none

	// The owner's backup. Only the owner's goroutine uses these fields.
	open Backup      // nil = it has not begun
	read int64       // bytes read so far
	idle *time.Timer // closes the connection after backupIdleTimeout
}

// of reports whether conn has a backup.
func (b *backups) of(conn *resp.Conn) bool { return b.owner.Load() == conn.ID() }

// end ends the backup of conn. It reports whether conn had one.
func (b *backups) end(conn *resp.Conn) bool {
	if !b.of(conn) {
		return false
	}
	b.idle.Stop()
	if err := b.open.Close(); err != nil {
		b.log.Warn("cannot close a backup", "err", err)
	}
	b.open, b.read = nil, 0
	b.owner.Store(0)
	return true
}

// backupIdleTimeout is how long a client with a backup may wait before it asks for the next part.
// While a backup is open, no other client can begin one, and the engine keeps old files.
const backupIdleTimeout = 5 * time.Minute

// backupBegin begins a backup. If the connection has one, backupBegin ends it first.
func (c *client) backupBegin([][]byte) error {
	b := &c.x.backups
	if c.x.cfg.Backup == nil {
		return c.noBackup()
	}
	b.end(c.conn)
	for !b.owner.CompareAndSwap(0, c.conn.ID()) {
		if owner := b.owner.Load(); owner != 0 {
			return replyErrorf("ERR a backup is running on client id=%d", owner)
		}
	}
	open, err := c.x.cfg.Backup()
	if err != nil {
		b.owner.Store(0)
		return backupError(err)
	}
	b.open, b.idle = open, time.AfterFunc(backupIdleTimeout, c.abandonBackup)
	c.w.Simple("OK")
	return nil
}

// abandonBackup closes the connection because its backup is idle. Commands.Closed then ends the
// backup. The idle timer calls abandonBackup on another goroutine.
func (c *client) abandonBackup() {
	c.x.cfg.Logger.Warn("closed a client whose backup was idle", "id", c.conn.ID(), "timeout", backupIdleTimeout)
	c.conn.Close()
}

func (c *client) noBackup() error {
	if c.x.store.keyspace == nil {
		return replyErrorf("ERR '%s' is served by the embedded engine only, and this server keeps its mutexes in %s: back up that store",
			c.call.entry.full, c.x.cfg.Info.Engine)
	}
	return replyErrorf("ERR '%s' is served with durability always or async only: this server keeps nothing on disk", c.call.entry.full)
}

func backupError(err error) error { return replyErrorf("ERR backup: %v", err) }

// backupRead replies with the next bytes. offset is the number of bytes that the client has read.
// If it is wrong, the client has missed a reply.
func (c *client) backupRead(args [][]byte) error {
	b := &c.x.backups
	offset, ok := parseInt(args[2])
	switch {
	case !ok:
		return errNotInteger
	case !b.of(c.conn):
		return replyError("ERR no backup is running on this connection. Try SIMBA.BACKUP BEGIN.")
	case offset != b.read:
		return replyErrorf("ERR the backup is at offset %d, not %d", b.read, offset)
	}
	part, err := b.open.Next()
	if err != nil {
		b.end(c.conn)
		if !errors.Is(err, io.EOF) {
			return backupError(err)
		}
	} else {
		b.read += int64(len(part))
		b.idle.Reset(backupIdleTimeout)
	}
	c.w.Bulk(part)
	return nil
}

func (c *client) backupEnd([][]byte) error {
	return c.replyYes(c.x.backups.end(c.conn), 0, nil)
}
