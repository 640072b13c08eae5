package cluster_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// The suite runs on the leader of three members. Each of its servers is an engine of the leader's
// term, which begins with what the engine before has left. tests/members tests what clients of
// other members see.
func TestConformance(t *testing.T) {
	leads := openMembers(t)
	leads()
	for already := goleak.IgnoreCurrent(); ; already = goleak.IgnoreCurrent() { // until the members are connected
		time.Sleep(500 * time.Millisecond)
		if goleak.Find(already) == nil {
			break
		}
	}
	conformance.Run(t, conformance.Engine{
		Name: "cluster",
		Open: func(t testing.TB, n simba.Notices, _ time.Duration) conformance.Backend { return serve(t, leads, n) },
	})
}

// openMembers starts three members. It returns a function that waits until a member leads.
func openMembers(t *testing.T) (leader func() *leading) {
	var peers []cluster.Peer
	var listeners []net.Listener
	for _, name := range []string{"a", "b", "c"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
		peers = append(peers, cluster.Peer{Name: name, Addr: ln.Addr().String()})
	}
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	var present *leading
	for i, p := range peers {
		replica, err := persist.OpenReplica(persist.Options{FS: vfs.NewMem(), Dir: "data", Boot: persist.MachineBoot(), Fatal: func(err error) { t.Error(err) }, HistoryLen: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		m, err := cluster.Open(cluster.Options{
			Name: p.Name, Peers: peers, Listener: listeners[i], Replica: replica,
			Serve: func(c net.Conn) { c.Close() }, Users: func() string { return "" }, Fatal: func(err error) { t.Error(err) },
			Lead: func(l *cluster.Lead) {
				mu.Lock()
				present = &leading{l, replica}
				changed.Broadcast()
				mu.Unlock()
				<-l.Done
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			m.Close()
			if err := replica.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return func() *leading {
		mu.Lock()
		defer mu.Unlock()
		for present == nil || present.ended() {
			changed.Wait()
		}
		return present
	}
}

// leading is a term of a leader.
type leading struct {
	*cluster.Lead
	replica *persist.Replica
}

func (l *leading) ended() bool {
	select {
	case <-l.Done:
		return true
	default:
		return false
	}
}

// serving is an engine of a leader with its store.
type serving struct {
	*engine.Engine
	store *persist.Store
}

func serve(t testing.TB, leader func() *leading, n simba.Notices) serving {
	t.Helper()
	l := leader()
	clock := engine.ClockOf(persist.MachineBoot().Now)
	store, recovered, err := l.replica.Lead(persist.LeadOptions{Now: clock.Now, Propose: l.Propose, Confirm: l.Confirm, Format: l.Format})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Clock: clock, Notices: n}, store, engine.Recovery(*recovered))
	if err != nil {
		t.Fatal(err)
	}
	return serving{e, store}
}

func (s serving) Close() error {
	s.Stop()
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}
