package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The schedule decides the actions of clients and the faults. It depends on the seed and on the
// replies that clients received.

// run runs the whole schedule, one action at a time.
func (w *world) run() {
	for i := range w.config.clients {
		w.clients = append(w.clients, &client{name: fmt.Sprintf("c%d", i+1), proto: 2 + w.rng.IntN(2), known: map[*mutex]uint64{}})
	}
	w.begin(vfs.NewCrashableMem(), false)
	for range w.actions {
		if w.broken() {
			break
		}
		if w.fatal.Load() != 0 {
			w.count("fatal")
			// like a real process, the server may live on for a moment to log the error
			w.sleep(time.Duration(w.rng.IntN(500)) * time.Millisecond)
			w.restart(w.crash(w.percent()), pick(w.rng, false, false, true))
			continue
		}
		probe := w.wait()
		if w.broken() || w.fatal.Load() != 0 {
			continue
		}
		switch {
		case probe != nil:
			w.probe(probe)
		case w.rng.IntN(1000) < w.faults:
			w.injectFault()
		case w.rng.IntN(100) < 2:
			w.setWallClock()
		default:
			w.act(w.clients[w.rng.IntN(len(w.clients))])
		}
		if !w.broken() && w.up {
			w.sleep(0)
		}
	}
	w.end()
}

// end ends the run: the disk works again, and all clients leave.
func (w *world) end() {
	for range 3 {
		if w.broken() {
			break
		}
		if f, _, _ := w.disk.faultSince(); f != sound || w.fatal.Load() != 0 {
			w.restart(w.crash(w.percent()), false)
		}
		if w.broken() {
			break
		}
		w.finish()
		if w.fatal.Load() == 0 {
			break
		}
	}
	if w.broken() {
		if w.server != nil || w.store != nil {
			w.crash(0)
		}
		return
	}
	w.stop()
}

// wait lets time pass until the next action. If it returns a mutex, a deadline of that mutex is
// about now.
func (w *world) wait() *mutex {
	var d time.Duration
	var probe *mutex
	switch n := w.rng.IntN(100); {
	case n < 10:
		d = time.Duration(1 + w.rng.IntN(50))
	case n < 25:
		d = time.Duration(1 + w.rng.IntN(3_000_000))
	case n < 82:
		d = time.Duration(1 + w.rng.IntN(1_200_000_000))
	case n < 92:
		d = time.Duration(1 + w.rng.IntN(10_000_000_000))
	default:
		probe = w.model.mutexes[w.rng.IntN(w.mutexes)]
		d = time.Duration(1 + w.rng.IntN(1_000_000))
		off := pick(w.rng, -time.Millisecond, -1, 0, 0, 1, time.Millisecond)
		if at, ok := probe.deadline(); ok && at+off > w.now() && at < w.now()+5*time.Minute {
			d = at + off - w.now()
		} else {
			probe = nil
		}
	}
	w.sleep(d)
	return probe
}

// probe sends a request about a mutex at an instant close to one of its deadlines.
func (w *world) probe(mx *mutex) {
	c := w.clients[w.rng.IntN(len(w.clients))]
	if mx.held != nil && w.rng.IntN(3) == 0 {
		for _, o := range w.clients {
			if o.name == mx.held.owner {
				c = o
			}
		}
	}
	k := w.connection(c)
	if !k.idle() {
		return
	}
	w.count("probe")
	r := w.request(c, pick(w.rng, reqAcquire, reqAcquire, reqAcquire, reqGuard, reqOwner, reqCheck, reqSet), mx)
	w.send(k, r)
}

// connection returns the connection for a client's requests, and opens one if needed.
func (w *world) connection(c *client) *wire {
	if c.wire == nil || c.wire.gone || c.wire.hungUp {
		c.wire = w.dial(c.name, c.proto)
		w.count("connect")
		w.sleep(0)
	}
	return c.wire
}

// idle reports whether the client may send a new request on the wire.
func (k *wire) idle() bool {
	return len(k.pending) == 0 && k.halfOf == nil && !k.gone && !k.hungUp && k.pause() == nil
}

func (w *world) act(c *client) {
	k := w.connection(c)
	switch {
	case k.pause() != nil:
		if w.rng.IntN(3) == 0 {
			k.resume()
			w.logf(k, w.now(), "reads again")
		}
	case k.halfOf != nil:
		if w.rng.IntN(4) == 0 {
			w.logf(k, w.now(), "hangs up in the middle of a request")
			w.count("half and gone")
			w.hangUp(k)
			return
		}
		w.sendRest(k)
	case len(k.pending) > 0:
		w.actWaiting(c, k)
	default:
		w.actIdle(c, k)
	}
}

func (w *world) actWaiting(c *client, k *wire) {
	switch n := w.rng.IntN(100); {
	case n < 12:
		w.logf(k, w.now(), "hangs up without its reply")
		w.count("gone while waiting")
		w.hangUp(k)
	case n < 30:
		r := k.pending[0]
		if r.mx == nil || r.kind == reqExec || r.kind == reqWatch {
			return
		}
		w.count("retry")
		if w.rng.IntN(2) == 0 {
			w.hangUp(k)
			w.sleep(0)
		} else {
			c.old = append(c.old, k)
		}
		if w.broken() || w.fatal.Load() != 0 {
			return
		}
		c.wire = nil
		again := r.again()
		w.send(w.connection(c), again)
	case n < 36:
		w.logf(k, w.now(), "stops reading")
		w.count("stall")
		k.lax = true
		k.stall()
	case n < 60:
		w.toggleSubscription(c)
	}
}

// toggleSubscription lets a client subscribe to its own channels, or unsubscribe.
func (w *world) toggleSubscription(c *client) {
	if k := c.subscriber; k != nil && !k.gone && !k.hungUp {
		if len(k.pending) > 0 || w.noticesUnderWay(k) {
			return
		}
		if w.rng.IntN(3) == 0 {
			w.logf(k, w.now(), "unsubscribes")
			w.count("unsubscribe")
			w.hangUp(k)
			c.subscriber = nil
			return
		}
	} else {
		c.subscriber = w.dial(c.name, c.proto)
		w.sleep(0)
	}
	if w.broken() || !c.subscriber.idle() {
		return
	}
	w.send(c.subscriber, &request{kind: reqSubscribe, mx: w.model.mutexes[w.rng.IntN(w.mutexes)], who: c.name})
}

// noticesUnderWay reports whether a handoff notice is on its way to a wire. If the client
// unsubscribed now, the model could not tell whether the notice reaches the client.
func (w *world) noticesUnderWay(k *wire) bool {
	for _, mx := range w.model.mutexes {
		for _, t := range mx.handoffs {
			if slices.Contains(t.to, k) {
				return true
			}
		}
	}
	return false
}

func (w *world) actIdle(c *client, k *wire) {
	mx := w.model.mutexes[w.rng.IntN(w.mutexes)]
	switch n := w.rng.IntN(100); {
	case n < 62:
		w.send(k, w.request(c, w.kind(), mx))
	case n < 68:
		if len(k.watched) == 0 {
			w.send(k, w.request(c, reqWatch, mx))
			return
		}
		for _, x := range w.model.mutexes {
			if _, ok := k.watched[x]; ok {
				w.send(k, w.request(c, reqExec, x))
				return
			}
		}
	case n < 74:
		w.count("pipeline")
		var batch []*request
		for range 2 + w.rng.IntN(4) {
			r := w.request(c, w.kind(), w.model.mutexes[w.rng.IntN(w.mutexes)])
			r.wait, r.limit = false, 0
			batch = append(batch, r)
		}
		w.send(k, batch...)
	case n < 78:
		w.count("half")
		w.sendHalf(k, w.request(c, w.kind(), mx))
	case n < 90:
		w.toggleSubscription(c)
	case n < 96:
		w.logf(k, w.now(), "hangs up")
		w.count("hang up")
		w.hangUp(k)
	default:
		if len(c.old) > 0 {
			w.hangUp(c.old[0])
			c.old = c.old[1:]
		}
	}
}

func (w *world) kind() reqKind {
	n := w.rng.IntN(100)
	for _, x := range []struct {
		upTo int
		kind reqKind
	}{
		{46, reqAcquire}, {60, reqGuard}, {74, reqRelease}, {79, reqOwner}, {83, reqCheck}, {87, reqQueue},
		{90, reqHistory}, {92, reqBreak}, {95, reqSet}, {96, reqGet},
	} {
		if n < x.upTo {
			return x.kind
		}
	}
	return reqDelete
}

func (w *world) request(c *client, kind reqKind, mx *mutex) *request {
	r := &request{kind: kind, mx: mx, who: c.name, ttl: w.ttl()}
	switch kind {
	case reqAcquire:
		r.transition = w.transition()
		switch n := w.rng.IntN(10); {
		case n < 5:
			r.wait = true
			if w.rng.IntN(3) > 0 {
				r.limit = time.Duration(1+w.rng.IntN(20_000)) * time.Millisecond
			}
		case n < 7:
			r.noQueue = true
		}
		r.session = w.rng.IntN(5) == 0
	case reqGuard:
		r.transition = w.transition()
		if w.rng.IntN(2) == 0 {
			r.token = c.known[mx]
		}
	case reqRelease:
		if w.rng.IntN(3) == 0 {
			r.token = c.known[mx]
		}
	case reqCheck:
		other := w.clients[w.rng.IntN(len(w.clients))]
		if r.token = max(c.known[mx], other.known[mx]); r.token == 0 {
			r.kind = reqOwner // neither client knows a token yet
		}
	case reqBreak:
		r.reason = fmt.Sprint("because of ", w.rng.IntN(100))
	}
	return r
}

func (w *world) ttl() time.Duration {
	switch n := w.rng.IntN(100); {
	case n < 10:
		return time.Duration(1+w.rng.IntN(50)) * time.Millisecond
	case n < 40:
		return time.Duration(50+w.rng.IntN(2000)) * time.Millisecond
	case n < 85:
		return time.Duration(2000+w.rng.IntN(15_000)) * time.Millisecond
	case n < 99 || w.durability == async:
		return time.Duration(17_000+w.rng.IntN(60_000)) * time.Millisecond
	}
	return 24 * time.Hour
}

func (w *world) transition() time.Duration {
	if w.rng.IntN(2) == 0 {
		return 0
	}
	return time.Duration(1+w.rng.IntN(10_000)) * time.Millisecond
}

func (w *world) setWallClock() {
	by := time.Duration(1 + w.rng.IntN(int(pick(w.rng, 10*time.Millisecond, time.Second, time.Minute, 5*time.Hour))))
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	w.count("wall clock set")
	w.logf(nil, w.now(), "the wall clock is set by %v", by)
	w.wall.Add(int64(by))
	w.stepped = w.now()
}

func (w *world) percent() int { return pick(w.rng, 0, 0, 100, w.rng.IntN(101)) }

// injectFault makes the disk hang or fail, or stops or crashes the server.
func (w *world) injectFault() {
	if w.durability == memory {
		w.count("stop")
		w.restart(w.stop(), w.rng.IntN(3) == 0)
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 30:
		length := time.Duration(1+w.rng.IntN(9000)) * time.Millisecond
		if w.rng.IntN(8) == 0 {
			length += 10 * time.Second
		}
		h := w.disk.hang(length)
		w.logf(nil, w.now(), "the disk hangs until %v", h.until)
		w.count("disk hangs")
	case n < 45:
		f := pick(w.rng, failingSyncs, failingWrites, full)
		w.disk.fail(f)
		name := [...]string{"", "fsync fails", "write fails", "disk full"}[f]
		w.logf(nil, w.now(), "from now on: %s", name)
		w.count(name)
	case n < 65:
		if f, _, _ := w.disk.faultSince(); f != sound || w.disk.hanging() {
			return
		}
		w.count("stop")
		w.restart(w.stop(), w.rng.IntN(4) == 0)
	default:
		reboot := w.rng.IntN(3) == 0
		w.count("crash")
		percent := w.percent()
		if !reboot && w.rng.IntN(3) == 0 {
			percent = 100 // as after kill -9: the machine writes all its data to the disk
		}
		w.restart(w.crash(percent), reboot)
	}
}

// restart starts the server again on the files that are left, after a random pause.
func (w *world) restart(left *vfs.MemFS, reboot bool) {
	if w.broken() {
		return
	}
	down := time.Duration(1 + w.rng.IntN(int(pick(w.rng, time.Microsecond, time.Second, 20*time.Second))))
	time.Sleep(down)
	if reboot {
		w.count("reboot")
	}
	w.begin(left, reboot)
}
