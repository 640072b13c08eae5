package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/simba-resp/simba-resp/persist"
)

// entryLog is the Log of a member: its Replica and its file. Raft reads entries from memory. They stay
// there until the checkpoint after the one that has them, so that a member that was away for a moment
// needs no snapshot.
type entryLog struct {
	*raft.MemoryStorage
	replica    *persist.Replica
	file       *file
	connect    func()        // is called when a snapshot has brought a list of members
	sending    *atomic.Int32 // snapshots that are being sent; meanwhile all later entries stay
	checkpoint uint64        // index of the last checkpoint that Save has seen
}

func newEntryLog(r *persist.Replica, f *file, connect func(), sending *atomic.Int32) (*entryLog, error) {
	l := &entryLog{
		MemoryStorage: raft.NewMemoryStorage(), replica: r, file: f, connect: connect, sending: sending,
		checkpoint: r.Checkpoint(),
	}
	if err := l.reset(l.checkpoint, r.Term()); err != nil {
		return nil, err
	}
	var entries []*raftpb.Entry
	for e, err := range r.Entries() {
		if err != nil {
			return nil, err
		}
		entries = append(entries, toRaft(e))
	}
	return l, l.Append(entries)
}

// reset makes the log one that begins after an index.
func (l *entryLog) reset(index, term uint64) error {
	if index == 0 {
		return nil
	}
	return l.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term}})
}

// InitialState implements raft.Storage.
func (l *entryLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	i, commit := l.file.get(), l.replica.Checkpoint()
	return &raftpb.HardState{Term: &i.Term, Vote: &i.Vote, Commit: &commit}, i.confState(), nil
}

// Snapshot implements raft.Storage. The message gets its contents when it is sent.
func (l *entryLog) Snapshot() (*raftpb.Snapshot, error) {
	index, i := l.replica.Checkpoint(), l.file.get()
	term, err := l.Term(index)
	if err != nil || index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: i.confState()}}, nil
}

// Save implements Log. It syncs all entries of the batch together, so that a slow disk falls behind
// only by what one sync takes.
func (l *entryLog) Save(batch []*raftpb.Message) error {
	now := l.file.get()
	next := now
	for _, m := range batch {
		if m.Term != nil {
			next.Term, next.Vote = m.GetTerm(), m.GetVote()
		}
	}
	if next.Term != now.Term || next.Vote != now.Vote {
		if err := l.file.change(func(i *identity) { i.Term, i.Vote = next.Term, next.Vote }); err != nil {
			return err
		}
	}
	var entries []*raftpb.Entry
	for _, m := range batch {
		if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
			entries = nil // the snapshot replaces all entries before
			if err := l.install(s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm(), s.GetData()); err != nil {
				return err
			}
		}
		if later := m.GetEntries(); len(later) != 0 {
			kept := len(entries)
			for kept > 0 && entries[kept-1].GetIndex() >= later[0].GetIndex() {
				kept--
			}
			entries = append(entries[:kept], later...)
		}
	}
	if err := l.append(entries); err != nil {
		return err
	}
	return l.compact()
}

func (l *entryLog) append(entries []*raftpb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	records := make([]persist.Entry, 0, len(entries))
	for _, e := range entries {
		records = append(records, fromRaft(e))
	}
	if err := l.replica.Append(records); err != nil {
		return err
	}
	return l.Append(entries)
}

// install installs a snapshot, whose members are the JSON text of an identity.
func (l *entryLog) install(index, term uint64, members []byte) error {
	var from identity
	if err := json.Unmarshal(members, &from); err != nil {
		return fmt.Errorf("the members in a snapshot: %w", err)
	}
	if err := l.file.change(func(i *identity) { i.Changed, i.Members = from.Changed, from.Members }); err != nil {
		return err
	}
	l.connect()
	if err := l.replica.Install(index, term); err != nil {
		return err
	}
	l.checkpoint = index
	return l.reset(index, term)
}

func (l *entryLog) compact() error {
	if index := l.replica.Checkpoint(); index != l.checkpoint && l.sending.Load() == 0 {
		if err := l.Compact(l.checkpoint); err != nil && !errors.Is(err, raft.ErrCompacted) {
			return fmt.Errorf("compact the entries: %w", err)
		}
		l.checkpoint = index
	}
	return nil
}

func toRaft(e persist.Entry) *raftpb.Entry {
	kind := raftpb.EntryNormal
	if e.Kind == persist.EntryMembers {
		kind = raftpb.EntryConfChange
	}
	return &raftpb.Entry{Index: new(e.Index), Term: new(e.Term), Type: kind.Enum(), Data: e.Data}
}

func fromRaft(e *raftpb.Entry) persist.Entry {
	kind := persist.EntryRecord
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		kind = persist.EntryMembers
	case len(e.GetData()) == 0:
		kind = persist.EntryEmpty
	}
	return persist.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: kind, Data: e.GetData()}
}
