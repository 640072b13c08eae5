package engine

// watched has the watched mutexes of a shard, by name. The shard's mu guards it.
type watched map[string]*watch

// watch counts the changes of a mutex while clients or transactions watch it.
type watch struct {
	refs  int
	lock  uint64 // number of changes of the lock or the reservation
	queue uint64 // number of changes of the queue
}

// touch counts the changes of a step.
func (w watched) touch(m *mutex, s *step, before mutexStats) {
	if len(w) == 0 {
		return
	}
	x := w[m.name()]
	if x == nil {
		return
	}
	after := statsOf(m, true)
	if s.changed || len(s.offers) > 0 || before.reserved != after.reserved {
		x.lock++
	}
	if before.extra != after.extra || before.queue != after.queue {
		x.queue++
	}
}

// version returns the count of the lock's changes, or of the queue's.
func (x *watch) version(queue bool) uint64 {
	if queue {
		return x.queue
	}
	return x.lock
}

// seenVersions are the versions of a mutex that a transaction has read.
type seenVersions struct {
	lock, queue     uint64
	ofLock, ofQueue bool
}

func (s *seenVersions) add(x *watch, queue bool) {
	if queue && !s.ofQueue {
		s.ofQueue, s.queue = true, x.queue
	}
	if !queue && !s.ofLock {
		s.ofLock, s.lock = true, x.lock
	}
}

func (s *seenVersions) same(x *watch) bool {
	return (!s.ofLock || s.lock == x.lock) && (!s.ofQueue || s.queue == x.queue)
}

// watch begins to watch a mutex. The caller must call unwatch later.
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

// Watch implements simba.Keyspace.
func (e *Engine) Watch(name string, queue bool) (version uint64) {
	if !e.enter() {
		return 0
	}
	defer e.leave()
	sh, hash := e.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.open(name, hash)
	return sh.watch(name).version(queue)
}

// Unwatch implements simba.Keyspace.
func (e *Engine) Unwatch(name string) {
	sh, _ := e.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if x := sh.watched[name]; x != nil { // nil if the engine had stopped before Watch
		sh.unwatch(name, x)
	}
}
