package engine

// watched has the watched mutexes of a shard, by name. The shard's mu guards it.
type watched map[string]*watch

// watch counts the changes of a mutex while clients or transactions watch it.
type watch struct {
	refs     int
	versions versions
}

// versions has a number that grows with each change of the lock or the reservation, and one that
// grows with each change of the queue; 0 = not read.
type versions [2]uint64

func versionIndex(queue bool) int {
	if queue {
		return 1
	}
	return 0
}

// touch counts the changes of a step.
func (w watched) touch(m *mutex, s *step, before, after mutexStats) {
	if len(w) == 0 {
		return
	}
	x := w[m.name()]
	if x == nil {
		return
	}
	if s.changed || len(s.offers) > 0 || before.reserved != after.reserved {
		x.versions[versionIndex(false)]++
	}
	if before.extra != after.extra || before.queue != after.queue {
		x.versions[versionIndex(true)]++
	}
}

// watch begins to watch a mutex. The caller must call unwatch later.
func (sh *shard) watch(name string) *watch {
	if sh.watched == nil {
		sh.watched = make(watched)
	}
	x := sh.watched[name]
	if x == nil {
		x = &watch{versions: versions{1, 1}}
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
	return sh.watch(name).versions[versionIndex(queue)]
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
