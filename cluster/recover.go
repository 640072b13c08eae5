package cluster

import (
	"errors"

	"github.com/simba-resp/simba-resp/persist"
)

// Recover makes a directory that of the first member of a new cluster. It is that of a single server,
// which has all leases, or that of a member whose cluster has lost its majority. Such a member may
// lack leases, so it needs o.RecoveryDelay, and it has a new id, with which it never votes in the old
// cluster. The member does the rest when it starts: see Member.recover.
func Recover(o persist.Options) (err error) {
	r, err := persist.OpenToRecover(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := openFile(r, randomID)
	if err != nil {
		return err
	}
	now := f.get()
	_, isMember := now.byID(now.ID)
	switch isSingle := now.Cluster == ""; {
	case isSingle && r.Checkpoint() == 0: // a member that never had a cluster
		return errors.New("the directory has no store")
	case !isSingle && !isMember && len(now.Members) != 0:
		return errors.New("its cluster has removed this member, so it may lack any lease: choose another member")
	case !isSingle && o.RecoveryDelay == 0:
		return errors.New("the member may lack leases that its cluster has granted: --recovery-delay is required, at least the longest ttl + transition that any program asks for")
	}
	return f.change(func(i *identity) {
		*i = identity{ID: randomID(), Cluster: randomCluster(), Term: max(i.Term, 1), Delay: o.RecoveryDelay}
	})
}

// recover makes a member the only one of the cluster that Recover has named. A crash may repeat it.
func (m *Member) recover(i identity) error {
	index, err := m.o.Replica.Recover(i.Delay)
	if err != nil {
		return err
	}
	i.Changed, i.Members, i.Delay = index, []member{m.self()}, 0
	return m.file.change(func(now *identity) { *now = i })
}
