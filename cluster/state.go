package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/simba-resp/simba-resp/persist"
)

// identity is what a member knows of itself and of its cluster. It is the JSON text of the file
// MEMBER.
type identity struct {
	ID      uint64   `json:"id"`      // of the member, random
	Cluster string   `json:"cluster"` // random; "" = the member belongs to no cluster yet
	Term    uint64   `json:"term"`    // raft's
	Vote    uint64   `json:"vote"`    // in that term
	Changed uint64   `json:"changed"` // index of the last change in Members
	Members []member `json:"members"`
	// Delay is set by Recover, until the member starts: see persist.Replica.Recover.
	Delay time.Duration `json:"delay,omitempty"`
}

// member is an entry in the list of members.
type member struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Learner bool   `json:"learner"` // it has no vote yet
}

func (i *identity) confState() *raftpb.ConfState {
	var s raftpb.ConfState
	for _, m := range i.Members {
		if m.Learner {
			s.Learners = append(s.Learners, m.ID)
		} else {
			s.Voters = append(s.Voters, m.ID)
		}
	}
	return &s
}

func (i *identity) member(is func(member) bool) (m member, ok bool) {
	at := slices.IndexFunc(i.Members, is)
	if at < 0 {
		return member{}, false
	}
	return i.Members[at], true
}

func (i *identity) byName(name string) (member, bool) {
	return i.member(func(m member) bool { return m.Name == name })
}

func (i *identity) byID(id uint64) (member, bool) {
	return i.member(func(m member) bool { return m.ID == id })
}

// file is the identity of a member with its file. It is safe for concurrent use.
type file struct {
	replica *persist.Replica
	writing chan struct{} // has an element while the file is written

	mu  sync.Mutex // guards now; never held during I/O, for which no client waits
	now identity
}

// openFile reads the file. If it is new, it gets an id.
func openFile(r *persist.Replica, newID func() uint64) (*file, error) {
	f := &file{replica: r, writing: make(chan struct{}, 1)}
	text, err := r.Member()
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return f, f.change(func(i *identity) { i.ID = newID() })
	}
	if err := json.Unmarshal(text, &f.now); err != nil || f.now.ID == 0 {
		return nil, fmt.Errorf("the file MEMBER of the data directory is damaged: %w", err)
	}
	return f, nil
}

func (f *file) get() identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.now
	i.Members = slices.Clone(i.Members)
	return i
}

// change changes the identity durably.
func (f *file) change(do func(*identity)) error {
	f.writing <- struct{}{}
	defer func() { <-f.writing }()
	next := f.get()
	do(&next)
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := f.replica.SetMember(text); err != nil {
		return fmt.Errorf("write the file MEMBER: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = next
	return nil
}
