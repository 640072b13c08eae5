package cluster

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// memoryLog is a Log in memory.
type memoryLog struct{ *raft.MemoryStorage }

func (l memoryLog) Save(batch []*raftpb.Message) error {
	for _, m := range batch {
		if err := l.Append(m.GetEntries()); err != nil {
			return err
		}
	}
	return nil
}

// startNodes starts the members 1 to n, whose messages arrive as long as the cut is not set. It returns
// the leader and its term.
func startNodes(t *testing.T, n uint64, cut *atomic.Bool) (leader *Node, term uint64) {
	var voters []uint64
	for id := range n {
		voters = append(voters, id+1)
	}
	var mu sync.Mutex // guards nodes
	nodes := make(map[uint64]*Node)
	for _, id := range voters {
		log := raft.NewMemoryStorage()
		if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: proto.Uint64(1), Term: proto.Uint64(1), ConfState: &raftpb.ConfState{Voters: voters},
		}}); err != nil {
			t.Fatal(err)
		}
		node, err := Start(Config{
			ID: id, Log: memoryLog{log}, Logger: slog.New(slog.DiscardHandler),
			Heartbeat: 100 * time.Millisecond, Election: time.Second,
			Send: func(m *raftpb.Message) {
				time.AfterFunc(time.Millisecond, func() {
					mu.Lock()
					defer mu.Unlock()
					if !cut.Load() {
						nodes[m.GetTo()].Step(proto.CloneOf(m))
					}
				})
			},
			Apply: func(*raftpb.Entry) (*raftpb.ConfChange, error) { return nil, nil },
			Leads: func(bool, uint64) {}, LeaderChanged: func() {},
			Fatal: func(err error) { t.Error(err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(node.Stop)
		mu.Lock()
		nodes[id] = node
		mu.Unlock()
	}
	time.Sleep(10 * time.Second)
	id, term := nodes[1].Leader()
	if id == 0 {
		t.Fatal("there is no leader")
	}
	return nodes[id], term
}

// The simulation tests all else of a Node.

func TestRequestsOfAnEarlierTermFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, term := startNodes(t, 1, new(atomic.Bool))
		if err := errors.Join(n.Propose(term, []byte("x")), n.Confirm(term)); err != nil {
			t.Errorf("in its term %d the leader says %v", term, err)
		}
		for name, err := range map[string]error{"Propose": n.Propose(term-1, []byte("y")), "Confirm": n.Confirm(term - 1)} {
			if !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s for the term before returns %v", name, err)
			}
		}
	})
}

func TestConfirmNeedsAnAnswerOfAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := new(atomic.Bool)
		n, term := startNodes(t, 3, cut)
		if err := n.Confirm(term); err != nil {
			t.Errorf("the leader says %v", err)
		}
		cut.Store(true)
		if err := n.Confirm(term); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a leader that is cut off says %v", err)
		}
	})
}
