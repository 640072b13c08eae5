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

var errNoChroot = errors.New("the chroot does not exist")

// fault returns what an operator has to change. ok is false for an error that may pass by itself, also
// that of an unreadable lease node: its creator rewrites it, or its session ends.
func (st *store) fault(err error) (f proxy.Fault, ok bool) {
	p := paths{st.target.chroot}
	fault := func(setting, format string, args ...any) (proxy.Fault, bool) {
		return proxy.Fault{Setting: setting, Text: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		who := "give --zookeeper-auth, or let everybody"
		if st.target.auth != nil {
			who = "check user and password of --zookeeper-auth, and let this user"
		}
		return fault("acl", "no permission (NoAuth): %s create, read, write and delete in and below %s and %s", who, p.mutexes(), p.leases())
	case errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		return fault("auth", "the ensemble rejects the authentication (%v): check --zookeeper-auth", err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fault("nodes", "an ephemeral node of another program is below %s, or is %s: delete it", p.mutexes(), p.leases())
	case errors.Is(err, errQuotaExceeded):
		return fault("quota", "the quota of %s or %s is used up (%v): raise it by setquota, or delete nodes", p.mutexes(), p.leases(), err)
	case errors.Is(err, errUnimplemented):
		return fault("version", "the ensemble does not support container nodes: ZooKeeper 3.5 or later is needed")
	case errors.Is(err, errNoChroot):
		return fault("chroot", "the chroot %s does not exist: create it", st.target.chroot)
	}
	return f, false
}
