package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// sessions is how many sessions a server opens.
const sessions = 4

func (st *store) firstSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, st.options.Timeout)
	defer cancel()
	st.slots = make([]*slot, sessions)
	err := each(sessions, func(i int) error {
		s, err := st.openSession(ctx)
		st.slots[i] = &slot{session: s, replaced: make(chan struct{})}
		return err
	})
	if err == nil {
		err = st.check(ctx, st.slots[0].session)
	}
	if err == nil {
		return nil
	}
	for _, l := range st.slots {
		if l.session != nil {
			l.session.close()
		}
	}
	if f, ok := st.fault(err); ok {
		err = f
	}
	return fmt.Errorf("zookeeper at %s: %w", st.options.Servers, err)
}

// Check implements proxy.Store. It checks the ensemble while the server runs. A fault refuses no
// request by itself: a request that begins a tenure creates nodes, as check does, and gets the same
// errors. A shorter session timeout than asked for is a fault too.
func (st *store) Check(ctx context.Context) (faults []proxy.Fault, err error) {
	s, err := st.slots[0].current(ctx, st)
	if err == nil {
		err = st.check(ctx, s)
	}
	if f, ok := st.fault(err); ok {
		faults, err = append(faults, f), nil
	}
	if got := 2 * st.longestLease(); got < st.options.SessionTimeout {
		faults = append(faults, proxy.Fault{Setting: "maxSessionTimeout", Text: fmt.Sprintf(
			"the ensemble chose the session timeout %v instead of %v: see its maxSessionTimeout", got, st.options.SessionTimeout)})
	}
	return faults, err
}

// check creates the top nodes, and tries each operation that the engine needs below them.
func (st *store) check(ctx context.Context, s *session) error {
	mutex, lease := s.mutexes()+"/probe-"+string(s.tag), s.leases()+"/probe-"+string(s.tag)
	for {
		for _, parent := range []string{s.leases(), s.mutexes()} {
			if _, err := s.make(ctx, parent, nil, zk.FlagContainer); err != nil {
				return err
			}
		}
		_, err := s.multi(ctx,
			&zk.CreateRequest{Path: mutex, Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: lease, Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: lease, Version: 0},
			&zk.DeleteRequest{Path: lease, Version: 1},
			&zk.DeleteRequest{Path: mutex, Version: 0})
		if !errors.Is(err, zk.ErrNoNode) { // else ZooKeeper has deleted the empty container meanwhile
			return err
		}
	}
}
