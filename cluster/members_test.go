package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/persist"
)

// proc is a member as a process: it can stop and start again with its directory.
type proc struct {
	t       *testing.T
	peers   []Peer
	dir     string
	member  *Member
	replica *persist.Replica
	fatal   chan error
	users   atomic.Value // a string, see Options.Users
}

// newPeers returns members with free addresses.
func newPeers(t *testing.T, names ...string) (peers []Peer) {
	t.Helper()
	for _, name := range names {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		peers = append(peers, Peer{name, ln.Addr().String()})
	}
	return peers
}

// newProc starts a member, the last of the peers that it knows.
func newProc(t *testing.T, peers []Peer) *proc {
	t.Helper()
	p := &proc{t: t, peers: peers, dir: t.TempDir(), fatal: make(chan error, 1)}
	p.mustStart()
	t.Cleanup(p.stop)
	return p
}

func (p *proc) mustStart() {
	p.t.Helper()
	if err := p.start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proc) start() (err error) {
	p.t.Helper()
	self := p.peers[len(p.peers)-1]
	log := slog.New(slog.NewTextHandler(p.t.Output(), nil)).With("self", self.Name)
	if p.replica, err = persist.OpenReplica(persist.Options{Dir: p.dir, Logger: log}); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", self.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.member, err = Open(Options{
		Name: self.Name, Peers: p.peers, Listener: ln, Replica: p.replica, Logger: log,
		Lead: func(l *Lead) { <-l.Done }, Serve: func(conn net.Conn) { conn.Close() }, Users: func() string { users, _ := p.users.Load().(string); return users },
		Fatal: func(err error) {
			select {
			case p.fatal <- err:
			default:
			}
		},
		Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
	})
	if err != nil {
		p.replica.Close()
	}
	return err
}

func (p *proc) stop() {
	if p.member != nil {
		p.member.Close()
		p.replica.Close()
		p.member = nil
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 30 s: not %s", what)
		}
	}
}

// voters returns the names of the voters that answer, sorted, as the leader of the members sees them.
func voters(procs ...*proc) (names string, leader *proc) {
	var all []string
	for _, p := range procs {
		if _, leads := p.member.Leader(); leads {
			leader = p
			for _, x := range p.member.Status().Members {
				if x.Reached && !x.Learner {
					all = append(all, x.Name)
				}
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, ""), leader
}

func awaitVoters(t *testing.T, want string, procs ...*proc) (leader *proc) {
	t.Helper()
	eventually(t, "voters "+want, func() bool {
		var got string
		got, leader = voters(procs...)
		return got == want
	})
	return leader
}

// start3 starts the members a, b, c.
func start3(t *testing.T, p []Peer) []*proc {
	t.Helper()
	procs := []*proc{
		newProc(t, []Peer{p[1], p[2], p[0]}), newProc(t, []Peer{p[0], p[2], p[1]}), newProc(t, []Peer{p[0], p[1], p[2]}),
	}
	awaitVoters(t, "abc", procs...)
	return procs
}

func TestNewcomerJoinsNoneOfTwoClusters(t *testing.T) {
	p := newPeers(t, "a", "b", "c")
	foreign, other := newProc(t, p[:1]), newProc(t, p[1:2])
	awaitVoters(t, "a", foreign)
	awaitVoters(t, "b", other)
	newcomer := newProc(t, p)
	for range 10 {
		if err := newcomer.member.find(); err == nil || !strings.Contains(err.Error(), "a and b belong to different clusters") {
			t.Fatalf("find returns %v", err)
		}
	}
	if names, _ := voters(foreign, other); names != "ab" || newcomer.member.Status().Cluster != "" {
		t.Errorf("the newcomer is in the cluster %q; the voters are %s, want a and b alone", newcomer.member.Status().Cluster, names)
	}
}

func TestMemberThatTheLeaderCannotReachIsNotReached(t *testing.T) {
	p := newPeers(t, "a", "b", "c", "c")
	procs := start3(t, p)
	_, leader := voters(procs...)
	lost := procs[2]
	if lost == leader {
		lost = procs[1]
	}
	lost.stop()
	lost.peers = slices.Clone(lost.peers)
	lost.peers[2].Addr = p[3].Addr // it can still ask the others
	lost.mustStart()
	reached := func() bool {
		for _, x := range leader.member.Status().Members {
			if x.Name == lost.peers[2].Name {
				return x.Reached
			}
		}
		return false
	}
	eventually(t, "the member is not reached", func() bool { return !reached() })
	for range 100 { // while the member campaigns
		if reached() {
			t.Fatal("a member that hears nothing of the leader is reached")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestLeaderNotesWhoHasOtherUsers(t *testing.T) {
	procs := start3(t, newPeers(t, "a", "b", "c"))
	differ := func(name string) func() bool {
		return func() bool {
			_, leader := voters(procs...)
			if leader == nil || leader.member.Status().Format == 0 {
				return false
			}
			for _, x := range leader.member.Status().Members {
				if x.UsersDiffer != (x.Name == name) {
					return false
				}
			}
			return true
		}
	}
	_, leader := voters(procs...)
	other := procs[0]
	if other == leader {
		other = procs[1]
	}
	other.users.Store("others")
	eventually(t, "a member has other users", differ(other.member.o.Name))
	other.users.Store("")
	eventually(t, "all have the same users", differ(""))
}

func TestNewMembersJoinMembersWithAnOldList(t *testing.T) {
	t.Run("one after the other", func(t *testing.T) {
		p := newPeers(t, "a", "b", "c", "d", "e")
		procs := append(start3(t, p), newProc(t, p[:4]))
		awaitVoters(t, "abcd", procs...)
		procs = append(procs, newProc(t, p))
		leader := awaitVoters(t, "abcde", procs...)
		// A new member may lead the old ones.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if to := procs[4]; to != leader {
			if err := leader.member.Transfer(ctx, "e"); err != nil {
				t.Fatal(err)
			}
		}
		if leader := awaitVoters(t, "abcde", procs...); leader != procs[4] {
			t.Error("e does not lead")
		}
	})
	t.Run("two at once", func(t *testing.T) {
		p := newPeers(t, "a", "b", "c", "d", "e")
		procs := append(start3(t, p), newProc(t, []Peer{p[0], p[1], p[2], p[4], p[3]}), newProc(t, p))
		awaitVoters(t, "abcde", procs...)
	})
}

func TestMemberThatWasAwayFollowsALeaderThatItDoesNotKnow(t *testing.T) {
	p := newPeers(t, "a", "b", "c", "d", "e")
	procs := append(start3(t, p), newProc(t, p[:4]))
	awaitVoters(t, "abcd", procs...)
	procs = append(procs, newProc(t, p))
	leader := awaitVoters(t, "abcde", procs...)
	others := slices.DeleteFunc(slices.Clone(procs), func(p *proc) bool { return p == leader })
	away, replaced := others[0], others[1]
	nameOf := func(p *proc) string { return p.peers[len(p.peers)-1].Name }
	away.stop()
	replaced.stop()
	replaced.dir = t.TempDir()
	replaced.mustStart()
	procs = slices.DeleteFunc(procs, func(p *proc) bool { return p == away })
	leader = awaitVoters(t, strings.Replace("abcde", nameOf(away), "", 1), procs...)
	eventually(t, "led by "+nameOf(replaced), func() bool {
		if _, leads := replaced.member.Leader(); leads {
			return true
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = leader.member.Transfer(ctx, nameOf(replaced)) // a lost message prevents it
		return false
	})
	away.mustStart()
	if leader := awaitVoters(t, "abcde", append(procs, away)...); leader != replaced {
		t.Errorf("%s leads", nameOf(leader))
	}
}

func TestRemovedMemberEnds(t *testing.T) {
	procs := start3(t, newPeers(t, "a", "b", "c"))
	_, leader := voters(procs...)
	eventually(t, "leads", func() bool { return leader.member.term() != nil })
	self := leader.peers[2].Name
	procs = slices.DeleteFunc(procs, func(p *proc) bool { return p == leader })
	running, stopped := procs[0], procs[1]
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	refused := func(name, want string) {
		t.Helper()
		if err := leader.member.Remove(ctx, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Remove of %q returns %v, want %q", name, err, want)
		}
	}
	refused(self, "leads")
	refused("x", "there is no member x")
	if err := running.member.Remove(ctx, self); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Remove of a follower returns %v", err)
	}

	stopped.stop()
	name := stopped.peers[2].Name
	refused(running.peers[2].Name, "could not serve") // although the other one has answered just before
	awaitVoters(t, strings.Replace("abc", name, "", 1), running, leader)
	if err := leader.member.Remove(ctx, name); err != nil {
		t.Fatal(err)
	}
	if got := len(leader.member.Status().Members); got != 2 {
		t.Errorf("there are %d members, want 2", got)
	}
	// It learns from the others that it was removed, and does not start again.
	stopped.mustStart()
	if err := <-stopped.fatal; !errors.Is(err, ErrRemoved) {
		t.Errorf("the removed member ends with %v", err)
	}
	stopped.stop()
	if err := stopped.start(); !errors.Is(err, ErrRemoved) {
		t.Errorf("the removed member starts again: %v", err)
	}
	stopped.member = nil

	if err := leader.member.Remove(ctx, running.peers[2].Name); err != nil {
		t.Fatal(err)
	}
	if err := <-running.fatal; !errors.Is(err, ErrRemoved) {
		t.Errorf("the member that was removed while it ran ends with %v", err)
	}
	running.stop()
	awaitVoters(t, self, leader)
	refused(self, "leads")
	// With an empty directory it is a new member.
	running.dir = t.TempDir()
	running.mustStart()
	awaitVoters(t, sorted(self, running.peers[2].Name), leader, running)
}

func sorted(names ...string) string {
	slices.Sort(names)
	return strings.Join(names, "")
}
