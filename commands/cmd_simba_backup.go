package commands

import (
	"errors"
	"io"
	"sync"
	"time"
)

var simbaBackupRow = command{
	name: "simba.backup", arity: -2, group: simbaGroup, since: "0.1.0",
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
	begin func() (Backup, error) // nil = the engine has no backups

	mu    sync.Mutex // protects owner; not held while a backup begins
	owner *client    // nil = none
}

// claim makes c the owner if there is none. It returns the owner, and whether that is c.
func (b *backups) claim(c *client) (owner *client, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == nil {
		b.owner = c
	}
	return b.owner, b.owner == c
}

func (b *backups) leave(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == c {
		b.owner = nil
	}
}

// backupIdleTimeout is how long a client with a backup may wait before it asks for the next part.
// While a backup is open, no other client can begin one, and the engine keeps old files.
const backupIdleTimeout = 5 * time.Minute

type runningBackup struct {
	Backup
	read int64       // bytes read so far
	idle *time.Timer // closes the connection after backupIdleTimeout
}

// If the connection has an open backup, backupBegin ends it first.
func (c *client) backupBegin([][]byte) error {
	begin := c.x.backups.begin
	if begin == nil {
		return c.noBackup()
	}
	c.endBackup()
	if owner, ok := c.x.backups.claim(c); !ok {
		return replyErrorf("ERR a backup is running on client id=%d", owner.conn.ID())
	}
	b, err := begin()
	if err != nil {
		c.x.backups.leave(c)
		return backupError(err)
	}
	c.backup = &runningBackup{Backup: b, idle: time.AfterFunc(backupIdleTimeout, c.abandonBackup)}
	c.w.Simple("OK")
	return nil
}

// abandonBackup closes the connection because its backup is idle. Commands.Closed then ends the
// backup. The idle timer calls abandonBackup on another goroutine.
func (c *client) abandonBackup() {
	c.x.log.Warn("closed a client whose backup was idle", "id", c.conn.ID(), "timeout", backupIdleTimeout)
	c.conn.Close()
}

func (c *client) noBackup() error {
	if c.x.keyspace == nil {
		return replyErrorf("ERR '%s' is served by the embedded engine only, and this server keeps its mutexes in %s: back up that store",
			c.running.full, c.x.info.Engine)
	}
	return replyErrorf("ERR '%s' is served with durability always or async only: this server keeps nothing on disk", c.running.full)
}

func backupError(err error) error { return replyErrorf("ERR backup: %v", err) }

// backupRead replies with the next bytes. offset is the number of bytes that the client has read.
// If it is wrong, the client has missed a reply.
func (c *client) backupRead(args [][]byte) error {
	offset, ok := parseInt(args[2])
	switch {
	case !ok:
		return errNotInteger
	case c.backup == nil:
		return replyError("ERR no backup is running on this connection. Try SIMBA.BACKUP BEGIN.")
	case offset != c.backup.read:
		return replyErrorf("ERR the backup is at offset %d, not %d", c.backup.read, offset)
	}
	part, err := c.backup.Next()
	switch {
	case errors.Is(err, io.EOF):
		c.endBackup()
	case err != nil:
		c.endBackup()
		return backupError(err)
	}
	if c.backup != nil {
		c.backup.read += int64(len(part))
		c.backup.idle.Reset(backupIdleTimeout)
	}
	c.w.Bulk(part)
	return nil
}

func (c *client) backupEnd([][]byte) error {
	c.replyYes(c.endBackup(), 0)
	return nil
}

// endBackup ends the backup of this connection. It reports whether the connection had one.
func (c *client) endBackup() bool {
	if c.backup == nil {
		return false
	}
	c.backup.idle.Stop()
	if err := c.backup.Close(); err != nil {
		c.x.log.Warn("cannot close a backup", "err", err)
	}
	c.backup = nil
	c.x.backups.leave(c)
	return true
}
