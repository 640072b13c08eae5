package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/simba-resp/simba-resp/persist"
)

// Options are the options of Open. Name, Peers, Listener, Replica, Lead, Serve, Users and Fatal must be
// set.
type Options struct {
	Name     string       // of this member, one of Peers
	Peers    []Peer       // all members, this one too
	Listener net.Listener // on this member's address; Open closes it
	// TLS returns for each connection how members identify each other; nil = they do not.
	TLS     func() *tls.Config
	Replica *persist.Replica
	// Lead is called on a goroutine of its own when this member begins to lead. It must return soon
	// after l.Done is closed. Only then Lead is called again.
	Lead func(l *Lead)
	// Serve serves a client that another member passes on. It is called on a goroutine of its own
	// while this member serves. The addresses of conn are those of the client's connection to the other
	// member, and conn has the method CertificateName that resp.Server knows.
	Serve func(conn net.Conn)
	// Users returns a digest of the users and passwords. The leader warns of members whose digest is
	// another one.
	Users func() string
	// Fatal is called with the first error that ends the member. It must end the process.
	Fatal  func(error)
	Logger *slog.Logger // nil = slog.Default
	// Dial connects to the address of a member, within 2 s; nil = by TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	Heartbeat time.Duration // the time between two heartbeats; 0 = 100 ms
	Election  time.Duration // the time without a leader after which a member campaigns; 0 = 1 s
}

// Peer is a member as the others find it.
type Peer struct {
	Name string
	Addr string // host:port
}

// Lead is a term in which this member leads.
type Lead struct {
	Term   uint64
	Done   <-chan struct{} // closed when the term has ended
	done   chan struct{}
	member *Member
	node   *Node
	serves atomic.Bool
	asked  time.Time        // belongs to maintain: see compare
	facts  map[uint64]facts // by the id of the member that has said them; guarded by Member.mu
}

// Propose appends a record to the journals of the members, and returns when a majority has it.
// The record must not change afterwards.
func (l *Lead) Propose(record []byte) error { return l.node.Propose(l.Term, record) }

// Confirm returns nil if this member still led after the call.
func (l *Lead) Confirm() error { return l.node.Confirm(l.Term) }

// Format returns the newest format of records that all members read: see persist.LeadOptions. While a
// member has not answered, it is the oldest format.
func (l *Lead) Format() uint32 {
	format, i := uint32(persist.RecordFormat), l.member.file.get()
	for _, x := range i.Members {
		if x.ID != i.ID {
			format = min(format, max(l.factsOf(x.ID).format, 1))
		}
	}
	return format
}

// factsOf returns what a member has answered in this term.
func (l *Lead) factsOf(id uint64) facts {
	l.member.mu.Lock()
	defer l.member.mu.Unlock()
	return l.facts[id]
}

// Serve says that this member serves clients now, until Done is closed.
func (l *Lead) Serve() { l.serves.Store(true) }

// maintainEvery is the time between two looks at what a member should do for its cluster.
const maintainEvery = 200 * time.Millisecond

// Member is one server of a cluster. Its methods are safe for concurrent use.
type Member struct {
	o         Options
	file      *file
	transport *transport
	terms     queue[*Lead] // for lead
	quit      chan struct{}
	sending   atomic.Int32  // snapshots that are being sent
	receiving chan struct{} // has an element while a snapshot is received
	running   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	node    *Node      // nil until the member belongs to a cluster
	present *Lead      // nil = this member does not lead
	// leading ends when the leader changes, by forget.
	leading context.Context
	forget  context.CancelFunc
}

// Open starts a member. The caller must call Close, and then close the Replica.
func Open(o Options) (*Member, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Heartbeat, o.Election = cmp.Or(o.Heartbeat, 100*time.Millisecond), cmp.Or(o.Election, time.Second)
	f, err := openFile(o.Replica, randomID)
	if err != nil {
		return nil, err
	}
	if f.get().Cluster == "" && o.Replica.Checkpoint() != 0 {
		return nil, errors.New("the recovery of the data directory was interrupted; repeat it")
	}
	m := &Member{o: o, file: f, quit: make(chan struct{}), receiving: make(chan struct{}, 1)}
	m.terms.init()
	m.transport = newTransport(transportConfig{
		self: f.get().ID, listener: o.Listener, tls: o.TLS, dial: o.Dial, logger: o.Logger,
		step:        func(x *raftpb.Message) { m.with(func(n *Node) { n.Step(x) }) },
		unreachable: func(id uint64) { m.with(func(n *Node) { n.Unreachable(id) }) },
		snapshot:    func(x *raftpb.Message) { m.running.Go(func() { m.sendSnapshot(x) }) },
		streams: map[byte]func(net.Conn, header){
			kindHello: m.serveHello, kindSnapshot: m.receiveSnapshot, kindClient: m.serveClient,
		},
	})
	m.leaderChanged()
	if f.get().Cluster != "" {
		if err := m.begin(); err != nil {
			m.transport.close()
			return nil, err
		}
	}
	m.running.Go(m.maintain)
	m.running.Go(m.lead)
	return m, nil
}

// randomID returns an id that no other member has.
func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])                      // it never fails
	return binary.BigEndian.Uint64(b[:])>>1 | 1 // raft's ids are not 0
}

// randomCluster returns an id that no other cluster has.
func randomCluster() string { return fmt.Sprintf("%016x%016x", randomID(), randomID()) }

// begin starts raft, when the member knows its cluster.
func (m *Member) begin() error {
	i := m.file.get()
	if _, ok := i.byID(i.ID); !ok && len(i.Members) != 0 {
		return ErrRemoved
	} else if !ok {
		if err := m.recover(i); err != nil {
			return err
		}
	}
	log, err := newEntryLog(m.o.Replica, m.file, func() { m.connect() }, &m.sending)
	if err != nil {
		return err
	}
	var cluster [16]byte
	if _, err := hex.Decode(cluster[:], []byte(i.Cluster)); err != nil {
		return fmt.Errorf("the id of the cluster: %w", err)
	}
	m.transport.join(cluster)
	m.connect()
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.quit:
		return errStopped
	default:
	}
	m.node, err = Start(Config{
		ID: i.ID, Log: log, Send: m.transport.send, Apply: m.apply, Leads: m.leads, LeaderChanged: m.leaderChanged, Fatal: m.o.Fatal,
		Heartbeat: m.o.Heartbeat, Election: m.o.Election, Logger: m.o.Logger,
	})
	return err
}

// connect connects the member to the others, and to more.
func (m *Member) connect(more ...member) {
	addrs := make(map[uint64]string)
	for _, x := range append(more, m.file.get().Members...) {
		addrs[x.ID] = m.addr(x)
	}
	m.transport.setPeers(addrs)
}

// addr returns the address of a member. What the operator says now counts more than what the member
// said when it joined.
func (m *Member) addr(x member) string {
	for _, p := range m.o.Peers {
		if p.Name == x.Name {
			return p.Addr
		}
	}
	return x.Addr
}

func (m *Member) with(do func(*Node)) {
	m.mu.Lock()
	n := m.node
	m.mu.Unlock()
	if n != nil {
		do(n)
	}
}

// Close ends the member.
func (m *Member) Close() {
	m.mu.Lock()
	close(m.quit) // with mu, so that begin starts no raft afterwards
	m.mu.Unlock()
	m.with((*Node).Stop)
	m.transport.close()
	m.running.Wait()
}

// apply handles a committed entry. The checkpoint takes no change of the members that the file lacks.
func (m *Member) apply(e *raftpb.Entry) (change *raftpb.ConfChange, err error) {
	if e.GetType() != raftpb.EntryNormal && e.GetIndex() > m.file.get().Changed {
		change, err = m.applyChange(e)
	}
	if err == nil {
		m.o.Replica.Commit(e.GetIndex())
	}
	return change, err
}

func (m *Member) applyChange(e *raftpb.Entry) (*raftpb.ConfChange, error) {
	var c raftpb.ConfChange
	var x member
	if err := errors.Join(proto.Unmarshal(e.GetData(), &c), json.Unmarshal(c.GetContext(), &x)); err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	isNew := false // else a snapshot was faster
	if err := m.file.change(func(i *identity) { isNew = i.apply(e.GetIndex(), c.GetType(), x) }); err != nil || !isNew {
		return nil, err
	}
	m.connect()
	m.o.Logger.Info("the members of the cluster have changed", "change", c.GetType().String(), "member", x.Name)
	if i := m.file.get(); c.GetType() == raftpb.ConfChangeRemoveNode && x.ID == i.ID {
		return nil, ErrRemoved
	}
	return &c, nil
}

// leads notes that this member begins or ends to lead.
func (m *Member) leads(leads bool, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.present != nil {
		close(m.present.done)
		m.present = nil
	}
	if leads {
		done := make(chan struct{})
		m.present = &Lead{Term: term, Done: done, done: done, member: m, node: m.node, facts: make(map[uint64]facts)}
		m.terms.put(m.present)
	}
}

// lead runs Options.Lead for one term after the other.
func (m *Member) lead() {
	for m.terms.wait(m.quit) {
		for _, l := range m.terms.take() {
			m.o.Lead(l)
		}
	}
}

// Serves reports whether this member serves clients itself: see Lead.Serve.
func (m *Member) Serves() bool {
	l := m.term()
	return l != nil && l.serves.Load()
}

// term returns the term in which this member leads, nil = it does not.
func (m *Member) term() *Lead {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present
}

// leaderContext returns a context that ends when the leader changes.
func (m *Member) leaderContext() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading
}

// LeaderChanged returns a channel that is closed when another leader is known than now, or none.
func (m *Member) LeaderChanged() <-chan struct{} { return m.leaderContext().Done() }

// leaderChanged ends the connections to the leader.
func (m *Member) leaderChanged() {
	if name, leads := m.Leader(); name != "" && !leads {
		m.o.Logger.Info("another member leads", "leader", name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forget != nil {
		m.forget()
	}
	m.leading, m.forget = context.WithCancel(m.transport.ctx)
}

// Leader returns the name of the leader, "" = none is known, and whether it is this member.
func (m *Member) Leader() (name string, leads bool) {
	i := m.file.get()
	x, _ := m.leader(i)
	return x.Name, x.ID == i.ID
}

func (m *Member) leader(i identity) (x member, ok bool) {
	m.with(func(n *Node) {
		id, _ := n.Leader()
		x, ok = i.byID(id)
	})
	return x, ok
}

// Status is what a member knows of its cluster.
type Status struct {
	Name      string
	Cluster   string // the random id of the cluster; "" = none yet
	Leader    string // "" = none is known
	Term      uint64
	Committed uint64 // index of the last record that a majority has
	Format    uint32 // of the records that this leader writes
	Members   []MemberStatus
}

// MemberStatus is the status of one member.
type MemberStatus struct {
	Peer
	ID      uint64
	Learner bool // it has no vote yet, since it lacks records

	// The leader alone knows these:
	Heard       time.Time // when the member has answered last
	Reached     bool      // that is not longer ago than Options.Election
	Match       uint64    // index of the last record that the member surely has
	Lag         uint64    // committed records that the member may lack
	UsersDiffer bool      // from those of the leader
}

// Status returns the status.
func (m *Member) Status() Status {
	i := m.file.get()
	leader, _ := m.leader(i)
	s := Status{Name: m.o.Name, Cluster: i.Cluster, Leader: leader.Name}
	l := m.term()
	if l != nil {
		s.Format = l.Format()
	}
	m.with(func(n *Node) {
		r, heard := n.Status()
		heard[i.ID] = time.Now()
		s.Term, s.Committed = r.GetTerm(), r.GetCommit()
		for _, x := range i.Members {
			match := r.Progress[x.ID].Match
			s.Members = append(s.Members, MemberStatus{
				Peer: Peer{x.Name, m.addr(x)}, ID: x.ID, Learner: x.Learner,
				Heard: heard[x.ID], Reached: time.Since(heard[x.ID]) <= m.o.Election,
				Match: match, Lag: s.Committed - min(match, s.Committed), UsersDiffer: l != nil && l.factsOf(x.ID).usersDiffer,
			})
		}
	})
	return s
}

// Transfer hands the leadership to a member, "" = to the one that has the most records. It returns
// when this member does not lead any more, or ctx ends. After an error this member may lead.
func (m *Member) Transfer(ctx context.Context, to string) error {
	l := m.term()
	if l == nil {
		return ErrNotLeader
	} else if to == m.o.Name {
		return fmt.Errorf("member %s leads already", to)
	}
	var best MemberStatus
	for _, x := range m.Status().Members {
		if x.Name != m.o.Name && x.Reached && !x.Learner && (to == "" || to == x.Name) && (best.ID == 0 || x.Match > best.Match) {
			best = x
		}
	}
	if best.ID == 0 {
		return fmt.Errorf("no member %s is a voter that answers", to)
	}
	for {
		l.node.Transfer(best.ID) // again, if the member was not ready, and raft has given up
		select {
		case <-time.After(maintainEvery):
		case <-l.Done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the member has not taken the lead in time: %w", ctx.Err())
		}
	}
}
