package engine

// watched are the mutexes of a shard that transactions have read, by name. It is guarded by
// the shard's lock.
type watched map[string]*watch

// watch counts the changes of a mutex while any transaction looks at it.
type watch struct {
	refs  int
	lock  uint64 // changes of the lock, or of whose turn it is
	queue uint64 // changes of who waits
}

// touch counts what a step has changed. It costs nothing if nobody looks.
func (w watched) touch(m *mutex, s *step, before mutexStats) {
	if len(w) == 0 {
		return
	}
	x := w[m.name()]
	if x == nil {
		return
	}
	after := statsOf(m, true)
	if s.changed || len(s.reservations) > 0 || before.reserved != after.reserved {
		x.lock++
	}
	if before.contention != after.contention || before.queue != after.queue {
		x.queue++
	}
}

// versions are what a transaction saw of a watch.
type versions struct {
	lock, queue     uint64
	ofLock, ofQueue bool
}

func (s *versions) add(x *watch, queue bool) {
	if queue && !s.ofQueue {
		s.ofQueue, s.queue = true, x.queue
	}
	if !queue && !s.ofLock {
		s.ofLock, s.lock = true, x.lock
	}
}

func (s *versions) same(x *watch) bool {
	return (!s.ofLock || s.lock == x.lock) && (!s.ofQueue || s.queue == x.queue)
}

// watch returns the watch of a mutex, for unwatch to give back.
func (sh *shard) watch(name string) *watch {
	if sh.watched == nil {
		sh.watched = make(watched)
	}
	x := sh.watched[name]
	if x == nil {
		x = new(watch)
		sh.watched[name] = x
	}
	x.refs++
	return x
}

func (sh *shard) unwatch(name string, x *watch) {
	if x.refs--; x.refs == 0 {
		delete(sh.watched, name)
	}
	if len(sh.watched) == 0 {
		sh.watched = nil // a map never shrinks
	}
}
