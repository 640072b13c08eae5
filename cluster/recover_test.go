package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/persist"
)

func (p *proc) lead() *Lead {
	p.member.mu.Lock()
	defer p.member.mu.Unlock()
	return p.member.present
}

// present returns the state that the leader has.
func (p *proc) present() *persist.Recovered {
	p.t.Helper()
	var l *Lead
	eventually(p.t, "leads", func() bool { l = p.lead(); return l != nil })
	s, rec, err := p.replica.Lead(persist.LeadOptions{Now: persist.MachineBoot().Now, Propose: l.Propose, Confirm: l.Confirm, Format: l.Format})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		p.t.Error(err)
	}
	return rec
}

func owners(t *testing.T, rec *persist.Recovered) (names string) {
	t.Helper()
	for l, err := range rec.Leases {
		if err != nil {
			t.Fatal(err)
		}
		names += l.Owner
	}
	return names
}

// acquire writes a lease of a minute, as an engine would.
func acquire(t *testing.T, s *persist.Store, rec *persist.Recovered, owner string) (token uint64) {
	t.Helper()
	lease := simba.Lease{Mutex: "m-" + owner, Owner: owner, Token: rec.Token + 1, Acquired: persist.MachineBoot().Now(), TTL: time.Minute}
	s.Append(simba.Change{Seq: rec.Seq + 1, Kind: simba.ChangePut, Lease: lease, Token: lease.Token})
	if err := s.Commit(rec.Seq + 1); err != nil {
		t.Fatal(err)
	}
	return lease.Token
}

func TestSingleServerBecomesTheFirstMember(t *testing.T) {
	dir := t.TempDir()
	s, rec, err := persist.Open(persist.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	token := acquire(t, s, rec, "o")
	if err := Recover(persist.Options{Dir: dir}); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("Recover of a directory in use returns %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Recover(persist.Options{Dir: dir, RecoveryDelay: time.Second}); err == nil || !strings.Contains(err.Error(), "needs no --recovery-delay") {
		t.Errorf("Recover with a delay returns %v", err)
	}
	if s, _, err = persist.Open(persist.Options{Dir: dir}); err != nil {
		t.Fatalf("a recovery that was refused has changed the directory: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As if Recover were interrupted.
	if err := os.WriteFile(filepath.Join(dir, "MEMBER"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	peers := newPeers(t, "b", "a")
	a := &proc{t: t, peers: peers, dir: dir, fatal: make(chan error, 1)}
	if err := a.start(); err == nil || !strings.Contains(err.Error(), "interrupted; repeat it") {
		t.Errorf("the member starts after half a recovery: %v", err)
	}
	a.member = nil
	if err := Recover(persist.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := persist.Open(persist.Options{Dir: dir}); !errors.Is(err, persist.ErrMember) {
		t.Errorf("Open as a single server returns %v", err)
	}
	a.mustStart()
	t.Cleanup(a.stop)
	b := newProc(t, []Peer{peers[1], peers[0]})
	awaitVoters(t, "ab", a, b)
	if rec := a.present(); owners(t, rec) != "o" || rec.Delay != 0 || rec.Token < token {
		t.Errorf("the leader has the owners %q, the delay %v, the token %d, want o, 0, at least %d", owners(t, rec), rec.Delay, rec.Token, token)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.member.Transfer(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if rec := b.present(); owners(t, rec) != "o" {
		t.Errorf("the new member has the owners %q, want o", owners(t, rec))
	}
	// With its directory it starts again as what it is now.
	a.stop()
	a.mustStart()
	awaitVoters(t, "ab", a, b)
}

func TestRestoredBackupBecomesTheFirstMember(t *testing.T) {
	s, rec, err := persist.Open(persist.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	token := acquire(t, s, rec, "o")
	b, err := s.Backup()
	if err != nil {
		t.Fatal(err)
	}
	var backup []byte
	for err == nil {
		var part []byte
		part, err = b.Next()
		backup = append(backup, part...)
	}
	file, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := persist.Restore(t.Context(), persist.RestoreOptions{From: file, Dir: dir, RecoveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := Recover(persist.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	peers := newPeers(t, "b", "a")
	a := &proc{t: t, peers: peers, dir: dir, fatal: make(chan error, 1)}
	a.mustStart()
	t.Cleanup(a.stop)
	other := newProc(t, []Peer{peers[1], peers[0]})
	awaitVoters(t, "ab", a, other)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.member.Transfer(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if rec := other.present(); owners(t, rec) != "o" || rec.Delay < 59*time.Minute || rec.Token < token {
		t.Errorf("the new member has the owners %q, the delay %v, the token %d, want o, an hour, at least %d", owners(t, rec), rec.Delay, rec.Token, token)
	}
}

func TestRecoverLeavesOtherDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	for _, dir := range []string{dir, filepath.Join(dir, "absent")} {
		if err := Recover(persist.Options{Dir: dir}); err == nil {
			t.Error("Recover of a directory without a store succeeds")
		}
	}
	if files, err := os.ReadDir(dir); len(files) != 0 || err != nil {
		t.Errorf("Recover has made %v (%v)", files, err)
	}
}

func TestMemberBeginsANewClusterAfterTheLossOfTheMajority(t *testing.T) {
	p := newPeers(t, "a", "b", "c")
	procs := start3(t, p)
	_, leader := voters(procs...)
	var l *Lead
	eventually(t, "leads", func() bool { l = leader.lead(); return l != nil })
	s, rec, err := leader.replica.Lead(persist.LeadOptions{Now: persist.MachineBoot().Now, Propose: l.Propose, Confirm: l.Confirm, Format: l.Format})
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, s, rec, "o")
	s.Close()
	left := procs[0]
	eventually(t, "all members have the lease", func() bool { return left.member.Status().Committed == leader.member.Status().Committed })
	for _, x := range procs {
		x.stop()
	}
	if err := Recover(persist.Options{Dir: left.dir}); err == nil || !strings.Contains(err.Error(), "--recovery-delay is required") {
		t.Errorf("Recover without a delay returns %v", err)
	}
	began := time.Now()
	if err := Recover(persist.Options{Dir: left.dir, RecoveryDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	left.mustStart()
	got := left.present()
	if owners(t, got) != "o" || got.Delay != time.Minute || got.Token < uint64(began.UnixMicro()) || uint64(got.Seq) < uint64(began.UnixMicro()) {
		t.Errorf("the leader has the owners %q, the delay %v, the floors %d and %d, want o, 1m, above %d", owners(t, got), got.Delay, got.Token, got.Seq, began.UnixMicro())
	}
	for l := range got.Leases {
		if left := l.Acquired.Add(l.TTL).Sub(persist.MachineBoot().Now()); time.Minute-left > time.Since(began) {
			t.Errorf("the lease has %v left, it did not begin anew", left)
		}
	}
	// The other members join with empty directories.
	for _, x := range procs[1:] {
		x.dir = t.TempDir()
		x.mustStart()
	}
	awaitVoters(t, "abc", procs...)
}
