package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

var errNoChroot = errors.New("the chroot no longer exists")

// lasting reports whether an error stays until an operator changes rights or nodes. An unreadable
// lease node gives no lasting error: its creator rewrites it, or its session ends.
func lasting(err error) bool {
	return among(err, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals, errNoChroot)
}

// misconfigured turns a lasting error into one that says what to change.
func (b *Backend) misconfigured(err error) error {
	p := paths{b.target.chroot}
	top, leases := p.mutexes(), p.leases()
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		err = fmt.Errorf("no permission (NoAuth): the user must be allowed to create, read, write and delete in and below %s and %s", top, leases)
	case errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		err = fmt.Errorf("the ensemble rejects the authentication: %w", err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		err = fmt.Errorf("an ephemeral node of another program is below %s, or is %s: delete it", top, leases)
	case errors.Is(err, errQuotaExceeded):
		err = fmt.Errorf("the quota of %s or %s is used up (%w): raise it by setquota, or delete nodes", top, leases, err)
	case errors.Is(err, errNoChroot):
		err = fmt.Errorf("the chroot %s no longer exists: create it", b.target.chroot)
	}
	return &simba.MisconfiguredError{Engine: "zookeeper", Err: err}
}
