package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

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
