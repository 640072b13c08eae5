package commands

import (
	"errors"
	"io"
	"sync"
	"time"
)

var simbaBackupRow = command{
	name: "simba.backup", arity: -2, group: simbaGroup, since: "0.1.0",
	summary:    "A container for the commands that copy the data of a running server",
	complexity: "Depends on subcommand.",
	subs: []command{
		{
			name: "begin", arity: 2, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupBegin,
			summary:    "Begins a consistent copy, which ends with the connection",
			complexity: "O(N) with N changes since the last checkpoint",
		},
		{
			name: "read", arity: 3, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupRead,
			summary:    "Returns the next bytes of the copy, none at its end",
			complexity: "O(N) with N bytes, at most 1 MiB",
			args:       []argument{{name: "offset", kind: integer}},
		},
		{
			name: "end", arity: 2, flags: adminHidden | noscript | noMulti, since: "0.1.0", run: (*client).backupEnd,
			summary:    "Ends the copy, and returns 0 if there was none",
			complexity: "O(1)",
		},
	},
}

// Backup is a consistent copy of the engine's data, as a stream.
type Backup interface {
	// Next returns the next bytes, and io.EOF after the last.
	Next() ([]byte, error)
	// Close ends the copy. It is idempotent.
	Close() error
}

// backups gives one connection at a time the right to a backup.
type backups struct {
	begin func() (Backup, error) // nil = the engine has none

	mu    sync.Mutex // protects owner; not held while a backup begins
	owner *client    // nil = none
}

// claim reports whether c may begin a backup now. If not, it names the client that has one.
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

// backupIdleTimeout is how long a client with a backup may take to ask for the next part. Until
// then nobody else can have a backup, and the store keeps the old files for it.
const backupIdleTimeout = 5 * time.Minute

// runningBackup is the backup of one connection.
type runningBackup struct {
	Backup
	read int64       // bytes
	idle *time.Timer // closes the connection after backupIdleTimeout
}

// backupBegin begins a backup. If the connection has one already, that one ends.
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

// abandonBackup closes the connection, and so ends its backup. It runs on a goroutine of its own.
func (c *client) abandonBackup() {
	c.x.log.Warn("closed a client that did not go on with its backup", "id", c.conn.ID(), "timeout", backupIdleTimeout)
	c.conn.Close()
}

// noBackup says which engine has backups.
func (c *client) noBackup() error {
	if c.x.keyspace == nil {
		return replyErrorf("ERR '%s' is served by the embedded engine only, and this server keeps its mutexes in %s: back up that store",
			c.running.full, c.x.info.Engine)
	}
	return replyErrorf("ERR '%s' is served with durability always or async only: this server keeps nothing on disk", c.running.full)
}

func backupError(err error) error { return replyErrorf("ERR backup: %v", err) }

// backupRead sends the next bytes. The offset is what the client has read so far. It shows that no
// reply was lost.
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

// endBackup ends the backup of this connection and reports whether it had one.
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
