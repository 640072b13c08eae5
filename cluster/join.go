package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/simba-resp/simba-resp/persist"
)

// hello is what members tell each other to find their cluster, as JSON. The member that has connected
// asks, and the other one answers.
type hello struct {
	member
	Join bool // in a question: replace the member of this name, or add it

	Format uint32 // of who answers: the newest format of records that it reads
	Users  string // of who answers: see Options.Users

	Cluster string    // of who answers; "" = none yet
	Changed uint64    // of who answers: see identity
	Leader  string    // the address of the leader that it knows; "" = none
	Joined  *identity // the cluster, if the one who asks is a member of it
	Error   string    // why it could not join
}

// apply applies a change of the members, which is the entry at an index. It returns false if i has it.
func (i *identity) apply(index uint64, kind raftpb.ConfChangeType, x member) bool {
	if index <= i.Changed {
		return false
	}
	i.Changed = index
	i.Members = slices.DeleteFunc(i.Members, func(m member) bool { return m.ID == x.ID })
	if kind != raftpb.ConfChangeRemoveNode {
		i.Members = append(i.Members, x)
	}
	return true
}

// maintain finds a cluster for the member, and then does what its leader must do.
func (m *Member) maintain() {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	said := ""
	for {
		var err error
		if i := m.file.get(); i.Cluster == "" {
			err = m.find()
		} else if _, ok := m.leader(i); !ok {
			m.askWhatChanged(i)
		} else if l := m.term(); l != nil {
			m.promote(i)
			m.compare(i, l)
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			m.o.Logger.Warn("waiting for a cluster", "why", err)
		}
		select {
		case <-ticker.C:
		case <-m.quit:
			return
		}
	}
}

// self returns the member as it enters itself in a list.
func (m *Member) self() member {
	x := member{ID: m.file.get().ID, Name: m.o.Name}
	x.Addr = m.addr(x)
	return x
}

// find makes the member one of a cluster. If its peers belong to a cluster, it joins that one. If all of
// them answer that they belong to none, the first one by its name draws the cluster. Each other one
// finds itself in the list of that cluster, and accepts it.
//
// So a member that has lost its directory never draws a cluster beside the one that lives, and never
// votes again with its old id.
func (m *Member) find() error {
	list := []member{m.self()}
	var found hello // of a member of the cluster to join
	var missing error
	for _, p := range m.o.Peers {
		if p.Name == m.o.Name {
			continue
		}
		answer, err := m.ask(p.Addr, hello{member: m.self()})
		switch {
		case err != nil:
			missing = fmt.Errorf("member %s at %s: %w", p.Name, p.Addr, err)
		case answer.Name != p.Name:
			missing = fmt.Errorf("the member at %s is %s, not %s", p.Addr, answer.Name, p.Name)
		case found.Cluster != "" && answer.Cluster != "" && found.Cluster != answer.Cluster:
			return fmt.Errorf("the members %s and %s belong to different clusters", found.Name, answer.Name)
		case answer.Cluster != "" && found.Leader == "":
			found = answer
		}
		list = append(list, answer.member)
	}
	switch {
	case found.Cluster != "":
		return m.join(found)
	case missing != nil:
		return missing
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	if list[0].Name != m.o.Name {
		return fmt.Errorf("member %s has not drawn the cluster yet", list[0].Name)
	}
	return m.accept(identity{Cluster: randomCluster(), Members: list})
}

// accept makes this member one of a cluster, durably.
func (m *Member) accept(from identity) error {
	err := m.file.change(func(i *identity) { i.Cluster, i.Changed, i.Members = from.Cluster, from.Changed, from.Members })
	if err == nil {
		m.o.Logger.Info("member of a cluster", "cluster", from.Cluster, "members", len(from.Members))
		err = m.begin()
	}
	if err != nil && !errors.Is(err, errStopped) {
		m.o.Fatal(err)
	}
	return err
}

// join joins a cluster whose member has answered.
func (m *Member) join(answer hello) error {
	if answer.Joined == nil {
		if answer.Leader == "" {
			return fmt.Errorf("member %s knows no leader", answer.Name)
		}
		var err error
		if answer, err = m.ask(answer.Leader, hello{member: m.self(), Join: true}); err != nil {
			return fmt.Errorf("join the cluster: %w", err)
		}
	}
	if answer.Joined == nil {
		return errors.New(answer.Error)
	}
	return m.accept(*answer.Joined)
}

// ask asks the member at an address.
func (m *Member) ask(addr string, question hello) (answer hello, err error) {
	ctx, cancel := context.WithCancel(m.transport.ctx)
	defer cancel()
	conn, err := m.transport.dial(ctx, addr, kindHello, 0)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(prefaceTime))
	if err := writeJSON(conn, question); err != nil {
		return answer, err
	}
	return answer, readJSON(conn, &answer)
}

// serveHello answers a member.
func (m *Member) serveHello(conn net.Conn, _ header) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(prefaceTime))
	var question hello
	if readJSON(conn, &question) == nil {
		_ = writeJSON(conn, m.answer(question)) // who asks sees an error
	}
}

func (m *Member) answer(question hello) hello {
	i := m.file.get()
	answer := hello{member: m.self(), Format: persist.RecordFormat, Users: m.o.Users(), Cluster: i.Cluster, Changed: i.Changed}
	if leader, ok := m.leader(i); ok {
		answer.Leader = m.addr(leader)
	}
	if _, ok := i.byID(question.ID); ok && i.Cluster != "" {
		answer.Joined = &identity{Cluster: i.Cluster, Changed: i.Changed, Members: i.Members}
	} else if question.Join {
		answer.Error = m.admit(i, question.member)
	}
	return answer
}

// admit does the next step that makes a newcomer a member, and returns why it is none yet. The
// newcomer asks again. Raft refuses a change while another one is not applied.
func (m *Member) admit(i identity, x member) string {
	if _, leads := m.Leader(); !leads {
		return "the leader has changed"
	}
	if old, ok := i.byName(x.Name); ok {
		if slices.ContainsFunc(m.Status().Members, func(s MemberStatus) bool { return s.ID == old.ID && s.Reached }) {
			return fmt.Sprintf("there is a member %s, and it is alive", x.Name)
		}
		m.change(raftpb.ConfChangeRemoveNode, old)
		return "the old member of this name is being removed"
	}
	x.Learner = true
	m.change(raftpb.ConfChangeAddLearnerNode, x)
	return "the member is being added"
}

func (m *Member) change(kind raftpb.ConfChangeType, x member) {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	m.with(func(n *Node) { n.Change(&raftpb.ConfChange{Type: kind.Enum(), NodeId: &x.ID, Context: text}) })
}

// catchUp is how many entries a learner may lack when it gets a vote.
const catchUp = 1000

// promote gives the next learner that has caught up a vote.
func (m *Member) promote(i identity) {
	s := m.Status()
	for _, x := range s.Members {
		if learner, _ := i.byID(x.ID); learner.Learner && x.Reached && x.Match != 0 && x.Match+catchUp >= s.Committed {
			learner.Learner = false
			m.change(raftpb.ConfChangeAddNode, learner)
			return
		}
	}
}

// compareEvery is the time between two questions of the leader to each other member.
const compareEvery = 10 * time.Second

// facts are what a leader has heard from a member in its term.
type facts struct {
	format      uint32
	usersDiffer bool // from those of the leader
}

// compare asks the other members for their facts, unless it has asked lately.
func (m *Member) compare(i identity, l *Lead) {
	if time.Since(l.asked) < compareEvery {
		return
	}
	l.asked = time.Now()
	for _, x := range i.Members {
		if x.ID == i.ID {
			continue
		}
		answer, err := m.ask(m.addr(x), hello{member: m.self()})
		if err != nil || answer.ID != x.ID {
			continue
		}
		f := facts{answer.Format, answer.Users != m.o.Users()}
		before := l.factsOf(x.ID)
		m.mu.Lock()
		l.facts[x.ID] = f
		m.mu.Unlock()
		if f.usersDiffer && !before.usersDiffer {
			m.o.Logger.Warn("a member has other users, passwords or rights than this leader", "member", x.Name)
		}
	}
}

// Remove removes a member from the cluster, and returns when that is done. If ctx ends before, the
// member may be removed later. Remove refuses what would leave the others without a majority.
func (m *Member) Remove(ctx context.Context, name string) error {
	l := m.term()
	if l == nil {
		return ErrNotLeader
	} else if name == m.o.Name {
		return fmt.Errorf("member %s leads: transfer the lead to another member first", name)
	}
	i := m.file.get()
	old, ok := i.byName(name)
	if !ok {
		return fmt.Errorf("there is no member %s", name)
	}
	began := time.Now()
	if l.Confirm() != nil {
		return ErrNotLeader
	}
	time.Sleep(maintainEvery) // the other answers of that round arrive
	voters := slices.DeleteFunc(m.Status().Members, func(x MemberStatus) bool { return x.ID == old.ID || x.Learner })
	silent := slices.DeleteFunc(slices.Clone(voters), func(x MemberStatus) bool { return x.Heard.After(began) })
	if 2*len(silent) >= len(voters) {
		return fmt.Errorf("without member %s the cluster could not serve: no majority of the other voters answers", name)
	}
	for ; ok; _, ok = i.byID(old.ID) {
		m.change(raftpb.ConfChangeRemoveNode, old)
		select {
		case <-time.After(maintainEvery):
		case <-ctx.Done():
			return fmt.Errorf("the removal is not done yet: %w", ctx.Err())
		}
		i = m.file.get()
	}
	return nil
}

// ErrRemoved is returned by Open, and passed to Options.Fatal, when the other members have removed
// this one.
var ErrRemoved = errors.New("this member was removed from the cluster; to join again, it needs an empty data directory")

// askWhatChanged asks the other members what has changed while this one did not hear them: whether they
// have removed it, and who is new. Without the address of a new leader, this member could not answer it.
func (m *Member) askWhatChanged(i identity) {
	for _, x := range i.Members {
		if x.ID == i.ID {
			continue
		}
		answer, err := m.ask(m.addr(x), hello{member: m.self()})
		// A member that has not seen the last changes may not know this one yet.
		if err != nil || answer.Cluster != i.Cluster || answer.Changed <= i.Changed {
			continue
		}
		if answer.Joined != nil {
			m.connect(answer.Joined.Members...)
			continue
		}
		err = m.file.change(func(i *identity) { i.apply(answer.Changed, raftpb.ConfChangeRemoveNode, member{ID: i.ID}) })
		m.o.Fatal(cmp.Or(err, ErrRemoved))
		return
	}
}
