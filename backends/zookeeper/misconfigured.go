package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// Which errors of the ensemble do not pass by themselves, and whom they are told.

// errNoChroot is returned when the chroot, which was there at the start, is missing.
var errNoChroot = errors.New("the chroot does not exist any more")

// lasting reports whether the ensemble will fail the same until an operator has changed
// the rights, or the nodes. A lease node that holds no lease is none of that: its keeper
// writes it anew, or its session ends.
func lasting(err error) bool {
	for _, known := range [...]error{zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals, errNoChroot} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// outOfQuota reports whether a node was not made because of an enforced quota
// (QuotaExceeded, which the library does not name). That passes when other nodes go.
func outOfQuota(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), "unknown error: -125")
}

// misconfigured names the fault of a lasting error.
func (b *Backend) misconfigured(err error) error {
	p := paths{b.target.chroot}
	top, leases := p.mutexes(), p.leases()
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		err = fmt.Errorf("no permission (NoAuth): the user must be allowed to create, read, write and delete in %s and %s, and in what is below", top, leases)
	case errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		err = fmt.Errorf("the ensemble does not take the authentication: %w", err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		err = fmt.Errorf("a node below %s, or %s, is another program's and ephemeral: delete it", top, leases)
	case errors.Is(err, errNoChroot):
		err = fmt.Errorf("the chroot %s does not exist any more: create it", b.target.chroot)
	}
	return &simba.MisconfiguredError{Engine: "zookeeper", Err: err}
}

// failWaits ends the waits for a mutex by an error that was met on their behalf, if it is a
// lasting one.
func (b *Backend) failWaits(mutex string, err error) {
	if lasting(err) && b.life.Err() == nil {
		b.waiters.Fail(mutex, b.misconfigured(err))
	}
}

// troubled notes why a lane gets no new session, nil if it has one. A lasting error is
// what requests are told at once, and what ends the waits.
func (b *Backend) setFault(l *sessionSlot, err error) {
	if err != nil && !lasting(err) {
		err = nil
	}
	b.mu.Lock()
	l.fault = err
	b.mu.Unlock()
	if err == nil {
		return
	}
	for _, mutex := range b.waiters.Mutexes() {
		if b.slotOf(mutex) == l {
			b.failWaits(mutex, err)
		}
	}
}
