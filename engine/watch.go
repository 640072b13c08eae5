package engine

// watched has the watches of a shard by mutex. The shard's lock guards it.
type watched map[string]*watch

// watch counts the changes of a mutex while a transaction watches it.
type watch struct {
	refs  int
	lock  uint64 // changes of the lock, or of the reservation
	queue uint64 // changes of the queue
}

// touch counts the changes of a step. It costs nothing if no transaction watches.
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

// versions are the counters of a watch when a transaction read the mutex.
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

// watch returns the watch of a mutex. The caller gives it back by unwatch.
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
