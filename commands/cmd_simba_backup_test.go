package commands

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeBackup is a stream of parts that ends with err.
type fakeBackup struct {
	parts  []string
	err    error
	open   *atomic.Int32 // the number of open backups
	closed bool
}

func (b *fakeBackup) Next() ([]byte, error) {
	if len(b.parts) == 0 {
		return nil, b.err
	}
	part := b.parts[0]
	b.parts = b.parts[1:]
	return []byte(part), nil
}

func (b *fakeBackup) Close() error {
	if !b.closed {
		b.closed = true
		b.open.Add(-1)
	}
	return nil
}

// backupSite serves backups that consist of the parts. After the last part, Next returns err.
func backupSite(t *testing.T, cfg Config, err error, parts ...string) (s *site, open *atomic.Int32) {
	open = new(atomic.Int32)
	cfg.Backup = func() (Backup, error) {
		open.Add(1)
		return &fakeBackup{parts: parts, err: err, open: open}, nil
	}
	return newSite(t, cfg), open
}

func TestABackupIsReadPartByPart(t *testing.T) {
	s, open := backupSite(t, Config{}, io.EOF, "one", "three")
	p := s.dial()
	p.expect("SIMBA.BACKUP READ 0", failed("ERR no backup is running on this connection. Try SIMBA.BACKUP BEGIN."))
	p.expect("SIMBA.BACKUP END", ":0\r\n")
	for range 2 { // after the first backup has ended, a second one can begin
		p.expect("SIMBA.BACKUP BEGIN", ok)
		p.expect("SIMBA.BACKUP READ 0", bulk("one"))
		p.expect("SIMBA.BACKUP READ 0", failed("ERR the backup is at offset 3, not 0"))
		p.expect("SIMBA.BACKUP READ x", failed("ERR value is not an integer or out of range"))
		p.expect("SIMBA.BACKUP READ 3", bulk("three"))
		p.expect("SIMBA.BACKUP READ 8", bulk(""))
		p.expect("SIMBA.BACKUP READ 8", failed("ERR no backup is running on this connection. Try SIMBA.BACKUP BEGIN."))
		if n := open.Load(); n != 0 {
			t.Errorf("after the last byte %d backups are open, want none", n)
		}
	}
}

func TestOneConnectionAtATimeHasABackup(t *testing.T) {
	s, open := backupSite(t, Config{}, io.EOF, "one", "two")
	first, second := s.dial(), s.dial()
	first.expect("SIMBA.BACKUP BEGIN", ok)
	second.expect("SIMBA.BACKUP BEGIN", failed("ERR a backup is running on client id=1"))
	second.expect("SIMBA.BACKUP END", ":0\r\n")
	first.expect("SIMBA.BACKUP READ 0", bulk("one"))
	first.expect("SIMBA.BACKUP BEGIN", ok) // ends the first backup
	first.expect("SIMBA.BACKUP READ 0", bulk("one"))
	if n := open.Load(); n != 1 {
		t.Errorf("%d backups are open, want 1", n)
	}
	for _, end := range []string{"SIMBA.BACKUP END", "RESET"} {
		first.do(end)
		second.expect("SIMBA.BACKUP BEGIN", ok)
		second.expect("SIMBA.BACKUP END", ":1\r\n")
		first.expect("SIMBA.BACKUP BEGIN", ok)
	}
}

func TestABackupEndsWithItsConnection(t *testing.T) {
	s, open := backupSite(t, Config{}, io.EOF, "one")
	p := s.dial()
	p.expect("SIMBA.BACKUP BEGIN", ok)
	p.nc.Close()
	other := s.dial()
	for other.do("SIMBA.BACKUP BEGIN") != ok { // the server has not noticed yet
	}
	if n := open.Load(); n != 1 {
		t.Errorf("%d backups are open, want 1", n)
	}
}

func TestABackupOfAnIdleClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := backupSite(t, Config{Logger: slog.New(slog.DiscardHandler)}, io.EOF, "one", "two", "three")
		p, other := s.dial(), s.dial()
		p.expect("SIMBA.BACKUP BEGIN", ok)
		for i, part := range []string{"one", "two"} { // each part begins a new idle time
			time.Sleep(backupIdleTimeout - time.Second)
			p.expect(fmt.Sprintf("SIMBA.BACKUP READ %d", 3*i), bulk(part))
		}
		time.Sleep(backupIdleTimeout - time.Second)
		other.expect("SIMBA.BACKUP BEGIN", failed("ERR a backup is running on client id=1"))
		time.Sleep(time.Second)
		synctest.Wait()
		other.expect("SIMBA.BACKUP BEGIN", ok)
		if n := open.Load(); n != 1 {
			t.Errorf("%d backups are open, want 1", n)
		}
		other.expect("SIMBA.BACKUP END", ":1\r\n")
		time.Sleep(2 * backupIdleTimeout)
		other.expect("SIMBA.BACKUP END", ":0\r\n") // idle without a backup: still connected
	})
}

func TestABackupThatFailsEndsWithTheCause(t *testing.T) {
	s, open := backupSite(t, Config{}, errors.New("bad sector"), "one")
	p := s.dial()
	p.expect("SIMBA.BACKUP BEGIN", ok)
	p.expect("SIMBA.BACKUP READ 0", bulk("one"))
	p.expect("SIMBA.BACKUP READ 3", failed("ERR backup: bad sector"))
	if n := open.Load(); n != 0 {
		t.Errorf("%d backups are open, want 0", n)
	}
	refusing := newSite(t, Config{Backup: func() (Backup, error) { return nil, errors.New("no") }}).dial()
	for range 2 {
		refusing.expect("SIMBA.BACKUP BEGIN", failed("ERR backup: no"))
	}
}

func TestAnEngineWithoutADiskSaysWhichHasBackups(t *testing.T) {
	s := newSite(t, Config{Info: Info{Engine: "redis"}})
	s.dial().expect("SIMBA.BACKUP BEGIN",
		failed("ERR 'simba.backup|begin' is served by the embedded engine only, and this server keeps its mutexes in redis: back up that store"))

	newEngineSite(t).dial().expect("SIMBA.BACKUP BEGIN",
		failed("ERR 'simba.backup|begin' is served with durability always or async only: this server keeps nothing on disk"))
}

// A backup shows every mutex and contender, whatever the rules for their names are.
func TestABackupNeedsTheRightsOfAnAdministrator(t *testing.T) {
	f := newUsersFile(t,
		"user default on nopass ~* &* +@all -@admin",
		"user admin on >secret ~* &* as:* +@all")
	s, _ := backupSite(t, Config{Users: f.open()}, io.EOF, "one")
	p := s.dial()
	for _, sub := range []string{"BEGIN", "READ 0", "END"} {
		name, _, _ := strings.Cut(strings.ToLower(sub), " ")
		p.expect("SIMBA.BACKUP "+sub, noCommand("simba.backup|"+name))
	}
	p.expect("AUTH admin secret", ok)
	p.expect("SIMBA.BACKUP BEGIN", ok)
}

func TestABackupIsNotServedInATransactionOrAScript(t *testing.T) {
	s, _ := backupSite(t, Config{}, io.EOF, "one")
	p := s.dial()
	p.expect("MULTI", ok)
	p.expect("SIMBA.BACKUP BEGIN", failed("ERR Command not allowed inside a transaction"))
}
