// Package cluster keeps the journals of several servers equal, by raft.
//
//	Propose ─▶ loop ─▶ disk: Log.Save ─▶ acknowledgement ─┐
//	             │      (each member)                      ▼
//	             └──▶ the others ◀── messages ──▶ committed ─▶ apply ─▶ Propose returns
//	Confirm ─▶ a round of heartbeats ─▶ Confirm returns
//
// One goroutine runs raft. It does no I/O: the disk and the applied entries have goroutines of their
// own, so that no heartbeat waits for a sync.
package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Log is what a member has on disk: the entries, its term and its vote.
type Log interface {
	raft.Storage
	// Save makes durable what messages of type MsgStorageAppend have, in their order. The entries of a
	// message replace those from the first one on.
	Save(batch []*raftpb.Message) error
}

// Config is the configuration of a Node. All fields must be set.
type Config struct {
	ID  uint64 // of this member
	Log Log

	// Send sends a message to the member m.To, or drops it. It must not block.
	Send func(m *raftpb.Message)
	// Apply is called for all committed entries, in order, on every member. If an entry changes the
	// members, and the member does not know the change already, Apply returns the change.
	Apply func(e *raftpb.Entry) (*raftpb.ConfChange, error)
	// Leads is called with true when this member leads and has applied all entries of earlier terms,
	// and with false when that has ended. It must not block.
	Leads func(leads bool, term uint64)
	// LeaderChanged is called when another leader is known, or none. It must not block.
	LeaderChanged func()
	// Fatal is called with the first error of Log or Apply. The Node does nothing any more.
	Fatal func(error)

	Heartbeat time.Duration // the time between two heartbeats
	Election  time.Duration // the time without a leader after which a member campaigns
	Logger    *slog.Logger
}

var (
	// ErrNotLeader is returned by Propose and Confirm. After Propose, the entry may be committed later.
	ErrNotLeader = errors.New("this member does not lead")
	errStopped   = errors.New("the member has stopped")
)

// Node is one member. Its methods are safe for concurrent use.
type Node struct {
	cfg       Config
	raw       *raft.RawNode        // belongs to loop, like the three fields below
	ticks     uint64               // since the start, from 1
	heard     map[uint64]time.Time // by member: its last answer to this one
	lastEmpty map[uint64]uint64    // by member: the tick of the last message to it that appends nothing
	inbox     queue[*raftpb.Message]
	toDisk    queue[*raftpb.Message]
	toApply   queue[*raftpb.Message]
	calls     queue[func()] // for loop
	wake      chan struct{} // has an element when there is a request
	quit      chan struct{}
	stopped   chan struct{} // closed when loop has returned
	running   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	leader   uint64     // the id of the leader, 0 = none is known
	term     uint64     // raft's present term
	elected  uint64     // the term in which raft has made this member the leader; 0 = it is none
	leads    bool       // all entries of earlier terms are applied
	proposed []proposal // that loop has not seen
	pending  []proposal // not committed yet, in order
	asking   []chan error
	round    uint64 // the number of the last round
	rounds   map[uint64][]chan error
}

type proposal struct {
	data []byte
	done chan error
}

// Start starts a member.
func Start(cfg Config) (*Node, error) {
	n := &Node{
		cfg: cfg, ticks: 1, heard: make(map[uint64]time.Time), lastEmpty: make(map[uint64]uint64), rounds: make(map[uint64][]chan error),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{}),
	}
	applied, err := cfg.Log.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("start the member: %w", err)
	}
	n.raw, err = raft.NewRawNode(&raft.Config{
		ID: cfg.ID, ElectionTick: int(cfg.Election / cfg.Heartbeat), HeartbeatTick: 1,
		Storage: cfg.Log, Applied: applied - 1, AsyncStorageWrites: true,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64, MaxInflightBytes: 16 << 20,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: raftLogger{cfg.Logger, cfg.Fatal},
	})
	if err != nil {
		return nil, fmt.Errorf("start the member: %w", err)
	}
	n.inbox.init()
	n.toDisk.init()
	n.toApply.init()
	n.calls.init()
	n.running.Go(n.loop)
	n.running.Go(n.save)
	n.running.Go(n.apply)
	return n, nil
}

// Stop stops the member. It may be called once.
func (n *Node) Stop() {
	close(n.quit)
	n.running.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endLocked(errStopped)
}

// Step handles a message of another member.
func (n *Node) Step(m *raftpb.Message) { n.inbox.put(m) }

// Propose appends an entry, and returns when it is applied. It fails unless this member leads in the
// term: what was right in an earlier one may not be right any more.
func (n *Node) Propose(term uint64, data []byte) error {
	done := make(chan error, 1)
	return n.request(term, done, func() { n.proposed = append(n.proposed, proposal{data, done}) })
}

// Confirm returns nil if this member still led in the term after the call.
func (n *Node) Confirm(term uint64) error {
	done := make(chan error, 1)
	return n.request(term, done, func() { n.asking = append(n.asking, done) })
}

// Change proposes a change of the members. It may be lost.
func (n *Node) Change(c *raftpb.ConfChange) {
	n.calls.put(func() { _ = n.raw.ProposeConfChange(c) })
}

// Transfer asks raft to hand the leadership to a member. Until it has done so, or has given up after
// the time Election, proposals wait.
func (n *Node) Transfer(to uint64) { n.calls.put(func() { n.raw.TransferLeader(to) }) }

// Unreachable says that a message to a member was lost.
func (n *Node) Unreachable(id uint64) { n.calls.put(func() { n.raw.ReportUnreachable(id) }) }

// SnapshotSent says whether a member has received a snapshot.
func (n *Node) SnapshotSent(id uint64, err error) {
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
	}
	n.calls.put(func() { n.raw.ReportSnapshot(id, status) })
}

// Status returns raft's status, and when each other member has answered this one last. It returns a
// zero Status when the member has stopped.
func (n *Node) Status() (s raft.Status, heard map[uint64]time.Time) {
	heard = make(map[uint64]time.Time)
	n.call(func() {
		s = n.raw.Status()
		maps.Copy(heard, n.heard)
	})
	return s, heard
}

// Leader returns the id of the leader, 0 = none is known, and raft's term.
func (n *Node) Leader() (id, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader, n.term
}

// call runs a function on the goroutine of loop, unless the member has stopped.
func (n *Node) call(do func()) {
	done := make(chan struct{})
	n.calls.put(func() { do(); close(done) })
	select {
	case <-done:
	case <-n.stopped:
	}
}

func (n *Node) request(term uint64, done chan error, add func()) error {
	n.mu.Lock()
	if !n.leads || term != n.elected {
		n.mu.Unlock()
		return ErrNotLeader
	}
	add()
	n.mu.Unlock()
	poke(n.wake)
	return <-done
}

func (n *Node) loop() {
	ticker := time.NewTicker(n.cfg.Heartbeat)
	defer ticker.Stop()
	defer close(n.stopped)
	for {
		for n.raw.HasReady() {
			n.ready(n.raw.Ready())
		}
		select {
		case <-ticker.C:
			n.ticks++
			n.raw.Tick()
			n.ask()
		case <-n.calls.ready:
			for _, do := range n.calls.take() {
				do()
			}
		case <-n.inbox.ready:
			for _, m := range n.inbox.take() {
				if raft.IsResponseMsg(m.GetType()) { // others do not show that it can hear this member
					n.heard[m.GetFrom()] = time.Now()
				}
				_ = n.raw.Step(m) // an error means that raft ignores the message
			}
		case <-n.wake:
			n.ask()
		case <-n.quit:
			return
		}
	}
}

// ask hands the requests to raft. Raft takes no proposal while it hands the leadership over. If that
// fails, the next tick proposes again.
func (n *Node) ask() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.proposed) != 0 && n.raw.Propose(n.proposed[0].data) == nil {
		n.pending = append(n.pending, n.proposed[0])
		n.proposed = n.proposed[1:]
	}
	if len(n.asking) != 0 {
		n.round++
		n.rounds[n.round], n.asking = n.asking, nil
		n.raw.ReadIndex(binary.BigEndian.AppendUint64(nil, n.round))
	}
}

// ready handles what raft wants to be done.
func (n *Node) ready(rd raft.Ready) {
	status := n.raw.BasicStatus()
	elected := uint64(0)
	if status.RaftState == raft.StateLeader {
		elected = status.GetTerm()
	}
	n.mu.Lock()
	if elected != n.elected {
		n.endLocked(ErrNotLeader)
	}
	changed := n.leader != status.Lead
	n.elected, n.leader, n.term = elected, status.Lead, status.GetTerm()
	for _, s := range rd.ReadStates {
		round := binary.BigEndian.Uint64(s.RequestCtx)
		for _, done := range n.rounds[round] {
			done <- nil
		}
		delete(n.rounds, round)
	}
	n.mu.Unlock()
	if changed {
		n.cfg.LeaderChanged()
	}
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			n.toDisk.put(m)
		case raft.LocalApplyThread:
			n.toApply.put(m)
		default:
			if !n.repeats(m) {
				n.cfg.Send(m)
			}
		}
	}
}

// repeats reports whether a message can be dropped: it appends nothing, and the member has had such a
// message since the last tick. Most of them only say which entries are committed, as the next entries
// and heartbeat do. With their replies they would double the messages of a commit. But some ask a
// member what it has, because an acknowledgement was lost.
func (n *Node) repeats(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp || len(m.GetEntries()) != 0 {
		return false
	}
	last := n.lastEmpty[m.GetTo()]
	n.lastEmpty[m.GetTo()] = n.ticks
	return last == n.ticks
}

// respond delivers the responses to a message of the disk or of the applied entries.
func (n *Node) respond(m *raftpb.Message) {
	for _, r := range m.GetResponses() {
		if r.GetTo() == n.cfg.ID {
			n.inbox.put(r)
		} else {
			n.cfg.Send(r)
		}
	}
}

func (n *Node) save() {
	for n.toDisk.wait(n.quit) {
		batch := n.toDisk.take()
		if err := n.cfg.Log.Save(batch); err != nil {
			n.cfg.Fatal(err)
			return
		}
		for _, m := range batch {
			n.respond(m)
		}
	}
}

func (n *Node) apply() {
	for n.toApply.wait(n.quit) {
		for _, m := range n.toApply.take() {
			for _, e := range m.GetEntries() {
				if err := n.applyEntry(e); err != nil {
					n.cfg.Fatal(err)
					return
				}
			}
			n.respond(m)
		}
	}
}

func (n *Node) applyEntry(e *raftpb.Entry) error {
	change, err := n.cfg.Apply(e)
	switch {
	case err != nil:
		return err
	case e.GetType() != raftpb.EntryNormal:
		if change != nil {
			n.call(func() { n.raw.ApplyConfChange(change) })
		}
		return nil
	case len(e.GetData()) == 0: // of a new leader, or of a change of members that raft has refused
		n.begin(e.GetTerm())
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leads && e.GetTerm() == n.elected && len(n.pending) != 0 {
		n.pending[0].done <- nil
		n.pending = n.pending[1:]
	}
	return nil
}

// begin begins to lead when the first entry of this member's term is applied.
func (n *Node) begin(term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if term == n.elected && !n.leads {
		n.leads = true
		n.cfg.Leads(true, term)
	}
}

// endLocked ends the lead, if there is one, and all requests with err.
func (n *Node) endLocked(err error) {
	if n.leads { // before somebody sees an error
		n.leads = false
		n.cfg.Leads(false, n.elected)
	}
	for _, p := range append(n.pending, n.proposed...) {
		p.done <- err
	}
	for _, asked := range n.rounds {
		n.asking = append(n.asking, asked...)
	}
	for _, done := range n.asking {
		done <- err
	}
	clear(n.rounds)
	n.pending, n.proposed, n.asking = nil, nil, nil
}
