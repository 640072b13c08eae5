package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// stationChannels is how many channels one connection listens to: the server allows
	// 10,000 subscriptions.
	stationChannels = 8192
	// batchChannels is how many go into one SUBSCRIBE: the server takes 1,024 arguments.
	batchChannels = 512
	// pingEvery is between two looks whether the connection is alive: it is replaced if nothing
	// came in between, the answer to a PING at least.
	pingEvery = 3 * time.Second
	// redialPause is between attempts to connect; it doubles up to redialPauseMax.
	redialPause    = 50 * time.Millisecond
	redialPauseMax = 2 * time.Second
	// idleAfter is how long a connection without channels is kept.
	idleAfter = 30 * time.Second
	// radioTimeout bounds what is asked of a subscriber's connection.
	radioTimeout = 3 * time.Second
)

// notice is what a listener hears.
type notice struct {
	channel, payload string
	fresh            bool // no message: the channel is heard from now on, what was said before may be missed
}

// listener hears channels. heard is called one notice at a time for each connection, and must not
// block.
type listener struct {
	heard    func(notice)
	channels []string
}

// radio is the subscribers' connections of a Client: channels with counted listeners.
// There is none, and no goroutine, until somebody listens.
type radio struct {
	rdb redis.UniversalClient
	all sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the stations
	stations []*station
	closed   bool
}

func newRadio(rdb redis.UniversalClient) *radio { return &radio{rdb: rdb} }

// station is one connection.
type station struct {
	r *radio

	// Guarded by radio.mu.
	channels map[string]*tuned
	changed  map[string]struct{} // channels whose listeners have come or gone
	wake     chan struct{}       // something has changed
	quit     context.Context     // ends when the radio is closed
	close    context.CancelFunc
}

// tuned is a channel that somebody listens to, or did.
type tuned struct {
	listeners []*listener
	asked     bool // SUBSCRIBE was sent on the present connection
	confirmed bool // and answered
}

// listen begins to listen. The listener hears of each channel when it is fresh, possibly
// before listen returns.
func (r *radio) listen(heard func(notice), channels ...string) *listener {
	l := &listener{heard: heard, channels: channels}
	r.mu.Lock()
	var fresh []string
	for _, c := range channels {
		s := r.stationLocked(c)
		if s == nil { // closed
			break
		}
		t := s.channels[c]
		if t == nil {
			t = &tuned{}
			s.channels[c] = t
		}
		t.listeners = append(t.listeners, l)
		if t.confirmed {
			fresh = append(fresh, c)
		}
		s.touchLocked(c)
	}
	r.mu.Unlock()
	for _, c := range fresh {
		heard(notice{channel: c, fresh: true})
	}
	return l
}

// leave ends listening. A notice that is under way may be heard still.
func (r *radio) leave(l *listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range l.channels {
		for _, s := range r.stations {
			t := s.channels[c]
			if t == nil {
				continue
			}
			if i := slices.Index(t.listeners, l); i >= 0 {
				t.listeners = slices.Delete(t.listeners, i, i+1)
				s.touchLocked(c)
			}
		}
	}
}

// stationLocked returns the station for a channel, beginning one if need be.
func (r *radio) stationLocked(channel string) *station {
	if r.closed {
		return nil
	}
	var room *station
	for _, s := range r.stations {
		if s.channels[channel] != nil {
			return s
		}
		if room == nil && len(s.channels) < stationChannels {
			room = s
		}
	}
	if room == nil {
		room = &station{
			r: r, channels: make(map[string]*tuned), changed: make(map[string]struct{}),
			wake: make(chan struct{}, 1),
		}
		room.quit, room.close = context.WithCancel(context.Background())
		r.stations = append(r.stations, room)
		r.all.Go(room.keep)
	}
	return room
}

func (s *station) touchLocked(channel string) {
	s.changed[channel] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (r *radio) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for _, s := range r.stations {
			s.close()
		}
	}
	r.mu.Unlock()
	r.all.Wait()
}

// keep keeps the station connected as long as somebody listens.
func (s *station) keep() {
	pause := redialPause
	for {
		if s.connected() {
			pause = redialPause
		}
		if s.idle() {
			return
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, redialPauseMax)
		case <-s.quit.Done():
			return
		}
	}
}

// idle ends the station if nobody listens.
func (s *station) idle() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, t := range s.channels {
		if len(t.listeners) != 0 {
			return false
		}
	}
	s.r.stations = slices.DeleteFunc(s.r.stations, func(o *station) bool { return o == s })
	return true
}

// connected is the life of one connection; it reports whether it ever was of use.
func (s *station) connected() (heard bool) {
	ps := s.r.rdb.Subscribe(context.Background()) // connects with the first SUBSCRIBE
	s.begin()
	news := make(chan struct{}, 1)
	broken := make(chan struct{})
	receiving := false
	defer func() {
		_ = ps.Close()
		if receiving {
			<-broken
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	alive, empty := true, time.Time{}
	for {
		n, err := s.tune(ps)
		if err != nil {
			return heard
		}
		switch {
		case n != 0:
			empty = time.Time{}
		case empty.IsZero():
			empty = time.Now()
		}
		if n != 0 && !receiving { // not before: Receive would connect by itself
			receiving = true
			go s.receive(ps, news, broken)
		}
		select {
		case <-s.wake:
		case <-news:
			heard, alive = true, true
		case <-ping.C:
			if n == 0 && time.Since(empty) >= idleAfter {
				return true
			}
			if receiving && (!alive || !s.ping(ps)) {
				return heard
			}
			alive = false
		case <-broken:
			return heard
		case <-s.quit.Done():
			return heard
		}
	}
}

func (s *station) ping(ps *redis.PubSub) bool {
	ctx, cancel := context.WithTimeout(s.quit, radioTimeout)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// begin forgets what an earlier connection was subscribed to.
func (s *station) begin() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for c, t := range s.channels {
		if len(t.listeners) == 0 {
			delete(s.channels, c)
			continue
		}
		t.asked, t.confirmed = false, false
		s.touchLocked(c)
	}
}

// tune subscribes to what somebody listens to by now, and leaves the rest; n is how many
// channels are left.
func (s *station) tune(ps *redis.PubSub) (n int, err error) {
	var on, off []string
	s.r.mu.Lock()
	for c := range s.changed {
		t := s.channels[c]
		switch {
		case t == nil:
		case len(t.listeners) != 0 && !t.asked:
			t.asked = true
			on = append(on, c)
		case len(t.listeners) == 0:
			delete(s.channels, c)
			if t.asked {
				off = append(off, c)
			}
		}
	}
	clear(s.changed)
	n = len(s.channels)
	s.r.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.quit, radioTimeout)
	defer cancel()
	for batch := range slices.Chunk(off, batchChannels) {
		err = errors.Join(err, ps.Unsubscribe(ctx, batch...))
	}
	for batch := range slices.Chunk(on, batchChannels) {
		err = errors.Join(err, ps.Subscribe(ctx, batch...))
	}
	return n, err
}

// receive passes on what comes until the connection breaks. Receive would then connect anew by
// itself, and keep Close waiting meanwhile: under a context that has ended it
// reads as ever but cannot connect.
func (s *station) receive(ps *redis.PubSub, news chan<- struct{}, broken chan<- struct{}) {
	defer close(broken)
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		m, err := ps.Receive(ended)
		if err != nil {
			return
		}
		select {
		case news <- struct{}{}:
		default:
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				s.tell(notice{channel: m.Channel, fresh: true})
			}
		case *redis.Message:
			s.tell(notice{channel: m.Channel, payload: m.Payload})
		}
	}
}

func (s *station) tell(n notice) {
	s.r.mu.Lock()
	var listeners []*listener
	if t := s.channels[n.channel]; t != nil {
		if n.fresh && t.asked {
			t.confirmed = true
		}
		listeners = slices.Clone(t.listeners)
	}
	s.r.mu.Unlock()
	for _, l := range listeners {
		l.heard(n)
	}
}
