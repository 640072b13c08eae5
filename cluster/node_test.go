package cluster

import (
	"errors"
	"log/slog"
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

// The simulation tests all else of a Node.
func TestRequestsOfAnEarlierTermFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := raft.NewMemoryStorage()
		if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: proto.Uint64(1), Term: proto.Uint64(1), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}}); err != nil {
			t.Fatal(err)
		}
		n, err := Start(Config{
			ID: 1, Log: memoryLog{log}, Logger: slog.New(slog.DiscardHandler),
			Send:  func(*raftpb.Message) {},
			Apply: func(*raftpb.Entry) (*raftpb.ConfChange, error) { return nil, nil },
			Leads: func(bool, uint64) {}, LeaderChanged: func() {},
			Fatal: func(err error) { t.Error(err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_, term := n.Leader()
		if err := errors.Join(n.Propose(term, []byte("x")), n.Confirm(term)); err != nil {
			t.Errorf("in its term %d the leader says %v", term, err)
		}
		for name, err := range map[string]error{"Propose": n.Propose(term-1, []byte("y")), "Confirm": n.Confirm(term - 1)} {
			if !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s for the term before returns %v", name, err)
			}
		}
		n.Stop()
	})
}
