package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// join opens a session. check is called before the session has its marker.
func (b *Backend) join(ctx context.Context, check func(context.Context, *session) error) (*session, error) {
	s, err := openSession(ctx, b.target, b.options.SessionTimeout, min(b.options.Timeout, b.options.SessionTimeout/3), b.Checks.Again, b.Log)
	if err != nil {
		return nil, err
	}
	if check != nil {
		err = check(ctx, s)
	}
	if err == nil {
		err = b.heartbeat(ctx, s)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// sessions is how many sessions a server opens.
const sessions = 4

func (b *Backend) firstSessions(ctx context.Context) error {
	for check := b.check; len(b.slots) < sessions; check = nil {
		limited, cancel := context.WithTimeout(ctx, b.options.Timeout)
		s, err := b.join(limited, check)
		cancel()
		if f, ok := b.fault(err); ok {
			err = f
		} else if errors.Is(err, errCutOff) {
			err = b.diagnose(err)
		}
		if err != nil {
			for _, l := range b.slots {
				l.session.close()
			}
			return fmt.Errorf("zookeeper at %s: %w", b.options.Servers, err)
		}
		b.slots = append(b.slots, &slot{session: s, replaced: make(chan struct{})})
	}
	if got := 2 * b.LongestLease(); got != b.options.SessionTimeout {
		b.Log.Warn("the ensemble chose another session timeout; see its minSessionTimeout and maxSessionTimeout",
			"asked", b.options.SessionTimeout, "got", got, "longest_lease", got/2)
	}
	return nil
}

// diagnose returns why no session could be opened. The library gives no reason.
func (b *Backend) diagnose(last error) error {
	for _, h := range b.target.servers {
		c, err := net.DialTimeout("tcp", h, time.Second)
		if err == nil {
			c.Close()
			return fmt.Errorf("%s accepts connections but opens no session within %v: is it a ZooKeeper with a quorum, and is its maxClientCnxns at least %d?",
				h, b.options.Timeout, sessions)
		}
		last = err
	}
	return fmt.Errorf("cannot connect: %w", last)
}

// recheck checks the ensemble while the server runs. A fault refuses no request by itself: a
// request that begins a tenure creates nodes, as check does, and gets the same errors.
func (b *Backend) recheck(ctx context.Context) (faults []proxy.Fault, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	s, err := b.slots[0].current(ctx, b)
	if err != nil {
		return nil, err
	}
	if got := 2 * b.LongestLease(); got < b.options.SessionTimeout {
		faults = append(faults, proxy.Fault{Setting: "maxSessionTimeout", Text: fmt.Sprintf(
			"the ensemble chose the session timeout %v instead of %v: see its maxSessionTimeout", got, b.options.SessionTimeout)})
	}
	err = b.check(ctx, s)
	if f, ok := b.fault(err); ok {
		return append(faults, f), nil
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
