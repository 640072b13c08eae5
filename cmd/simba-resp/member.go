package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/credentials"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/monitor"
	"github.com/simba-resp/simba-resp/persist"
)

// handOverTimeout bounds how long a stop waits until another member leads.
const handOverTimeout = time.Second

// member is this server as a member of a cluster. Connections reach the resp.Server only in a term
// in which this member leads, and end with the term:
//
//	client ─ front ─┬─ leads ─────────────▶ resp.Server ─ commands ─ engine ─ store of the term
//	                └─ relay ─▶ leader's serve ──▶ ┘
//
// While this member does not lead, the engine has stopped and has no state.
type member struct {
	*cluster.Member
	app     *app
	replica *persist.Replica
	engine  *engine.Engine
	tls     *credentials.Source[*tlsFiles] // of the members; its value is nil if they do not identify each other

	store atomic.Pointer[persist.Store]
}

// openReplica opens the files of this member.
func (a *app) openReplica(n simba.Notices) error {
	e, err := engine.New(a.engineConfig(engine.NewClock(0), n), engine.Memory(), engine.Recovery{})
	if err != nil {
		return err
	}
	e.Stop()
	m := &member{app: a, engine: e}
	m.replica, err = persist.OpenReplica(persist.Options{
		Dir: a.cfg.DataDir, Boot: persist.MachineBoot(), Logger: a.log.Logger, Fatal: a.storeFailed, HistoryLen: a.cfg.History,
	})
	if err != nil {
		return err
	}
	a.undo = append(a.undo, func(context.Context) error { return m.replica.Close() })
	a.member, a.engine = m, e
	return nil
}

// openMember joins the cluster, if there is one. From then on this member may lead.
func (a *app) openMember() error {
	m := a.member
	if m == nil {
		return nil
	}
	var identify func() *tls.Config
	var err error
	m.tls, err = credentials.Open(credentials.Config[*tlsFiles]{
		Parse:  func(string) (*tlsFiles, error) { return a.cfg.clusterTLS() },
		Failed: func(err error) { a.log.Error("the last certificate of this member stays in use", "err", err) },
	})
	if err != nil {
		return err
	}
	if m.tls.Last() != nil {
		identify = func() *tls.Config { return m.tls.Get().config }
	}
	all, _ := peers(a.cfg.Cluster) // Validate has checked them
	if len(all) == 2 {
		a.log.Warn("a cluster of two members serves only while both run")
	}
	ln, err := listen("cluster", a.cfg.membersAddr())
	if err != nil {
		return err
	}
	a.server.Suspend()
	m.Member, err = cluster.Open(cluster.Options{
		Name: a.cfg.ClusterName, Peers: all, Listener: ln, TLS: identify, Replica: m.replica,
		Lead: m.lead, Serve: a.server.ServeConn, Users: a.cfg.users.Digest,
		Heartbeat: a.cfg.ClusterHeartbeat, Election: a.cfg.ClusterElection,
		Fatal:  func(err error) { a.exit("this member of the cluster failed, exiting", err) },
		Logger: a.log.Logger,
	})
	if err != nil {
		ln.Close()
		return fmt.Errorf("cluster: %w", err)
	}
	a.undo = append(a.undo, func(context.Context) error { m.Close(); return nil })
	return nil
}

// front returns the listener of the clients that this member serves itself.
func (m *member) front(ln net.Listener) net.Listener {
	if ln == m.app.tlsLn {
		return m.Front(ln, m.app.certs.serverConfig(), m.app.cfg.MaxClients)
	}
	return m.Front(ln, nil, m.app.cfg.MaxClients)
}

// lead serves clients for one term.
func (m *member) lead(l *cluster.Lead) {
	store, err := m.begin(l)
	if err != nil {
		select {
		case <-l.Done:
		default:
			m.app.exit("this member cannot lead, exiting", err)
		}
		return
	}
	a := m.app
	a.log.Info("leading", "term", l.Term, "mutexes", m.engine.Stats().Mutexes)
	m.store.Store(store)
	a.server.Resume()
	l.Serve()

	<-l.Done
	// The engine stops before any connection ends, so that no closed connection releases its SESSION
	// leases. No reply depends on a change that the engine has not committed in this term.
	m.engine.Stop()
	a.server.Suspend()
	_ = m.engine.Start(engine.NewClock(0), engine.Memory(), engine.Recovery{}) // it has nothing to recover
	m.engine.Stop()
	m.store.Store(nil)
	if err := store.Close(); err != nil {
		a.log.Warn("cannot close the store of the last term", "term", l.Term, "err", err)
	}
	a.log.Info("no longer leading", "term", l.Term)
}

// begin starts the engine of a term.
func (m *member) begin(l *cluster.Lead) (*persist.Store, error) {
	clock := engine.ClockOf(persist.MachineBoot().Now)
	store, recovered, err := m.replica.Lead(persist.LeadOptions{Now: clock.Now, Propose: l.Propose, Confirm: l.Confirm, Format: l.Format})
	if err != nil {
		return nil, err
	}
	if err := m.engine.Start(clock, store, engine.Recovery(*recovered)); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// handOver lets another member lead, so that clients do not wait for an election.
func (m *member) handOver(ctx context.Context) error {
	for _, ln := range []net.Listener{m.app.ln, m.app.tlsLn, m.app.unixLn} {
		if ln != nil {
			ln.Close()
		}
	}
	if _, leads := m.Leader(); !leads || len(m.Status().Members) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := m.Transfer(ctx, ""); err != nil && !errors.Is(err, cluster.ErrNotLeader) {
		m.app.log.Warn("no other member has taken the lead in time", "err", err)
	}
	return nil
}

// monitored returns the state of the cluster for the HTTP server.
func (m *member) monitored() monitor.Cluster {
	s, serves := m.Status(), m.Serves()
	c := monitor.Cluster{
		Serves: serves, HasLeader: serves || s.Leader != "" && s.Leader != s.Name,
		Term: s.Term, Committed: s.Committed,
	}
	if serves {
		for _, x := range s.Members {
			c.Members = append(c.Members, monitor.Member{Name: x.Name, Reached: x.Reached, UsersDiffer: x.UsersDiffer, Lag: x.Lag})
		}
	}
	return c
}

// cluster returns the cluster, nil for a single server.
func (a *app) cluster() commands.Cluster {
	if a.member == nil {
		return nil
	}
	return a.member
}

// State implements commands.Cluster.
func (m *member) State() (state []any, members [][]any) {
	s := m.Status()
	for _, x := range s.Members {
		state, reached := "voter", int64(0)
		if x.Learner {
			state = "learner"
		}
		if x.Reached {
			reached = 1
		}
		members = append(members, []any{
			"name", x.Name, "addr", x.Addr, "state", state, "reached", reached, "lag", int64(x.Lag),
		})
	}
	return []any{"name", s.Name, "id", s.Cluster, "leader", s.Leader, "term", int64(s.Term), "committed", int64(s.Committed), "format", int64(s.Format)}, members
}
