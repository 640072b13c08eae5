package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// mutex has the nodes of a mutex that this server has created. Only the holder of its lock changes
// them. It holds the lock during I/O, but not while it creates a node or asks another server: see
// apart.
type mutex struct {
	name  string
	users int // who hold or want the lock; guarded by store.mu

	lock    sync.Mutex        // guards the entries
	entries map[string]*entry // by contender
	guids   map[guid]*entry   // the same entries
	left    int32             // how many latch nodes the last removal has left; 1 if that is unknown
}

// entry is a latch node of this server's session, and its lease node. It is guarded by the lock of
// its mutex.
type entry struct {
	s         *session
	contender string
	guid      guid
	child     string // name of the latch node; "" = the step has yet to decide what the entry becomes
	token     uint64 // czxid of the latch node
	made      time.Time
	first     bool // a list has shown that the latch node is the first, so it stays the first
	doomed    bool // its step has failed, so the nodes must be deleted
	// ahead is a node ahead of the latch node. The nodes are only changed while it exists, so while
	// the entry is not the first. "" = no condition
	ahead string
	timer *time.Timer // calls tend when something is due; nil = never
	state
}

// state is what a change of an entry's lease node sets.
type state struct {
	kind            kind
	ttl, transition time.Duration
	since           time.Time // of an owner: when its windows began
	acquired        int64     // see proxy.From
	acquiredAt      int64     // since on the ensemble's clock, in Unix milliseconds
	unwritten       bool      // the lease node of a new owner lacks its windows
}

// lock returns a mutex with its lock held. The holder gives the lock up at the latest when its
// session is over.
func (st *store) lock(name string) *mutex {
	st.mu.Lock()
	m := st.mutexes[name]
	if m == nil {
		m = &mutex{name: name, entries: make(map[string]*entry), guids: make(map[guid]*entry)}
		st.mutexes[name] = m
	}
	m.users++
	st.mu.Unlock()
	m.lock.Lock()
	return m
}

// unlock gives a lock up. It forgets a mutex without entries, if nobody else uses it.
func (st *store) unlock(m *mutex) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if m.users--; m.users == 0 && len(m.entries) == 0 {
		delete(st.mutexes, m.name)
	}
	m.lock.Unlock()
}

// apart runs f without the lock.
func (m *mutex) apart(f func()) {
	m.lock.Unlock()
	defer m.lock.Lock()
	f()
}

// call runs a step in a goroutine of its own. The caller waits for it until ctx ends. The step goes
// on until the outcome of what it has sent is known. It sends nothing new once ctx has ended.
func call[T any](ctx context.Context, st *store, f func(context.Context) (T, error)) (v T, err error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	st.Go(func() {
		v, err := f(ctx)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		if f, ok := st.fault(a.err); ok {
			a.err = &simba.MisconfiguredError{Engine: "zookeeper", Err: f}
		}
		return a.value, a.err
	case <-ctx.Done():
		return v, errNoAnswer
	}
}

// step is call for a step that holds the lock of a mutex. It runs f again while f returns errChanged.
func step[T any](ctx context.Context, st *store, name string, f func(context.Context, *session, *mutex) (T, error)) (T, error) {
	return call(ctx, st, func(ctx context.Context) (v T, err error) {
		for {
			s, err := st.slotOf(name).current(ctx, st)
			if err != nil {
				return v, err
			}
			m := st.lock(name)
			if err = errNoAnswer; ctx.Err() == nil {
				v, err = f(ctx, s, m)
			}
			st.unlock(m)
			if !errors.Is(err, errChanged) {
				return v, err
			}
			if !proxy.Sleep(ctx, changedPause, nil) {
				return v, errNoAnswer
			}
		}
	})
}

// changedPause is the pause before a step lists the queue again.
const changedPause = 5 * time.Millisecond

// at returns this server's entry of a latch node, or nil.
func (m *mutex) at(child string) *entry { return m.guids[guidOf(child)] }

// entryOf returns the entry of a contender; nil = none. It returns errChanged while a step of the
// contender has yet to decide what the entry becomes, and after it has ended a lease that is over.
func (st *store) entryOf(ctx context.Context, m *mutex, contender string) (*entry, error) {
	n := m.entries[contender]
	switch {
	case n == nil:
		return nil, nil
	case !n.isDecided():
		return nil, errChanged
	case n.over():
		return nil, cmp.Or(st.expire(ctx, m, n), errChanged)
	}
	return n, nil
}

func (m *mutex) has(n *entry) bool { return m.entries[n.contender] == n }

func (m *mutex) drop(n *entry) {
	if n.timer != nil {
		n.timer.Stop()
	}
	if m.has(n) {
		delete(m.entries, n.contender)
		delete(m.guids, n.guid)
	}
}

// isDecided reports whether the step that created an entry has decided what it becomes.
func (n *entry) isDecided() bool { return n.child != "" && !n.doomed }

func (n *entry) end() time.Time { return n.since.Add(n.ttl + n.transition) }

// over reports whether the entry is that of an owner whose lease has ended.
func (n *entry) over() bool {
	return n.kind == kindOwner && n.child != "" && !time.Now().Before(n.end())
}

func (n *entry) record(mutex string) *record {
	r := &record{Mutex: mutex, Contender: n.contender, Kind: n.kind, TTL: n.ttl.Milliseconds(), Transition: n.transition.Milliseconds()}
	if n.kind == kindOwner {
		r.Acquired, r.AcquiredMark = n.acquiredAt, n.acquired
	}
	return r
}

// ownerWriteDelay is the time from a grant to a waiter until the server writes the windows. Many
// leases are over by then and need no write.
const ownerWriteDelay = 20 * time.Millisecond

// arm lets tend run when something is due for an entry: soon after an error, or for an owner.
func (st *store) arm(m *mutex, n *entry, err error) {
	due := time.Until(n.end())
	switch {
	case err != nil:
		due = retryPause
	case n.kind != kindOwner:
		return
	case n.unwritten:
		due = min(due, ownerWriteDelay)
	}
	if n.timer != nil {
		n.timer.Stop()
	}
	n.timer = time.AfterFunc(due, func() { st.Go(func() { st.tend(m.name, n) }) })
}

// tend does what is due for an entry: it deletes the nodes, or writes the windows.
func (st *store) tend(name string, n *entry) {
	m := st.lock(name)
	defer st.unlock(m)
	var err error
	switch {
	case !m.has(n) || n.child == "" || !n.s.alive():
		return
	case n.doomed:
		err = st.remove(n.s.ctx, m, n, nil)
	case n.over():
		err = st.expire(n.s.ctx, m, n)
	case n.unwritten:
		err = st.write(n.s.ctx, m, n, nil, func(s *state) { s.unwritten = false })
	}
	if m.has(n) {
		st.arm(m, n, err)
	}
	st.hooks.Changed(name)
}

// eachMutex calls f for each mutex of a slot that this server knows, with its lock held.
func (st *store) eachMutex(l *slot, f func(*mutex)) {
	st.mu.Lock()
	var names []string
	for name := range st.mutexes {
		if st.slotOf(name) == l {
			names = append(names, name)
		}
	}
	st.mu.Unlock()
	for _, name := range names {
		m := st.lock(name)
		f(m)
		st.unlock(m)
	}
}
