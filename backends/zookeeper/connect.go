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

func (b *Backend) firstSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	b.slots = make([]*slot, sessions)
	err := each(sessions, func(i int) error {
		s, err := b.openSession(ctx)
		b.slots[i] = &slot{session: s, replaced: make(chan struct{})}
		return err
	})
	if err == nil {
		err = b.check(ctx, b.slots[0].session)
	}
	if err == nil {
		return nil
	}
	for _, l := range b.slots {
		if l.session != nil {
			l.session.close()
		}
	}
	if f, ok := b.fault(err); ok {
		err = f
	}
	return fmt.Errorf("zookeeper at %s: %w", b.options.Servers, err)
}

// recheck checks the ensemble while the server runs. A fault refuses no request by itself: a
// request that begins a tenure creates nodes, as check does, and gets the same errors.
func (b *Backend) recheck(ctx context.Context) (faults []proxy.Fault, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	s, err := b.slots[0].current(ctx, b)
	if err == nil {
		err = b.check(ctx, s)
	}
	if f, ok := b.fault(err); ok {
		faults, err = append(faults, f), nil
	}
	if got := 2 * b.LongestLease(); got < b.options.SessionTimeout {
		faults = append(faults, proxy.Fault{Setting: "maxSessionTimeout", Text: fmt.Sprintf(
			"the ensemble chose the session timeout %v instead of %v: see its maxSessionTimeout", got, b.options.SessionTimeout)})
	}
	return faults, err
}

// check creates the top nodes, and tries each operation that the engine needs below them.
func (b *Backend) check(ctx context.Context, s *session) error {
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
