package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// radio is the one pub/sub connection to a node, made anew whenever it breaks. Its own
// loop, not that of go-redis, since that drops messages when they come fast and does
// not tell that it reconnected. Safe for concurrent use.
type subscriber struct {
	client *redis.Client
	alive  time.Duration // within which a node must be heard of
	heard  func(m *redis.Message)
	// tuned tells of a channel that is listened to from now on, begun that all are that
	// were wanted when the connection was made.
	tuned func(channel string)
	begun func()
	// server names the channels of which each connection listens to one that is its own.
	server string
	// retelling is the number of the last list of channels in tuner.retell; guarded by tuner.mu.
	renotifying uint64

	mu       sync.Mutex // guards what follows
	channels map[string]*subscription
	fresh    []string                // to subscribe
	stale    []string                // to unsubscribe
	missing  int                     // channels of this connection that must be on before begun
	failure  error                   // why the last connection ended, or a channel was refused
	sent     []batch                 // subscriptions that are yet to be answered, in order
	singly   bool                    // a channel was refused: one that is goes alone
	refused  []string                // channels that were; asked for again, since rights may be mended
	sessions int                     // connections so far
	own      string                  // the channel of this connection alone, "" = not listened to yet
	leave    context.CancelCauseFunc // ends this connection; nil = there is none

	kick chan struct{} // of one: fresh or stale has something
	stop context.CancelFunc
}

// station is a channel that is wanted, or with pattern a glob of channels.
type subscription struct {
	pattern bool
	initial bool          // wanted when the connection was made
	on      chan struct{} // closed when the node has confirmed it
	isOn    bool
	wanted  time.Time // last asked for
	// breaks counts how often messages may have been lost, and made how many of that were
	// made good.
	breaks, made int
}

// batch is what one command subscribes to. The node confirms each channel, or refuses all.
type batch struct {
	names []string
	left  int // to be confirmed
}

func newSubscriber(client *redis.Client, alive time.Duration) *subscriber {
	return &subscriber{client: client, alive: alive, channels: make(map[string]*subscription), kick: make(chan struct{}, 1)}
}

// want subscribes to a channel, unless it is. The channel that is returned is closed
// when the node has confirmed it; after a break of the connection there is another.
func (r *subscriber) subscribe(name string, pattern bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.channels[name]
	if s == nil {
		s = &subscription{pattern: pattern, on: make(chan struct{})}
		r.channels[name] = s
		r.fresh = append(r.fresh, name)
		r.signal()
	}
	s.wanted = time.Now()
	return s.on
}

// sweep unsubscribes from channels that were not wanted of late and that keep does not need.
func (r *subscriber) sweep(before time.Time, keep func(name string, pattern bool) bool) {
	begun := false
	r.mu.Lock()
	for name, s := range r.channels {
		if s.wanted.Before(before) && !keep(name, s.pattern) {
			begun = r.removeLocked(name, s) || begun
		}
	}
	r.mu.Unlock()
	if begun {
		r.begun()
	}
}

// removeLocked unsubscribes from a channel. It reports whether all have begun by that.
func (r *subscriber) removeLocked(name string, s *subscription) (begun bool) {
	delete(r.channels, name)
	r.stale = append(r.stale, name)
	r.signal()
	return r.settleLocked(s)
}

// settleLocked counts a station no more as missing. It reports whether it was the last.
func (r *subscriber) settleLocked(s *subscription) (begun bool) {
	if !s.initial {
		return false
	}
	s.initial = false
	r.missing--
	return r.missing == 0
}

// wants reports whether the channel is wanted, confirmed or not.
func (r *subscriber) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.channels[name] != nil
}

// listens reports whether the node has confirmed the channel.
func (r *subscriber) confirmed(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.channels[name]
	return s != nil && s.isOn
}

func (r *subscriber) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *subscriber) signal() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run keeps a connection until ctx ends.
func (r *subscriber) run(ctx context.Context) {
	pause := 10 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		err := r.session(ctx)
		if err != nil && ctx.Err() == nil {
			r.mu.Lock()
			r.failure = err
			r.mu.Unlock()
		}
		if time.Since(began) > time.Second {
			pause = 10 * time.Millisecond
		}
		wait(ctx, pause)
		pause = min(2*pause, 500*time.Millisecond)
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// spent is a context that has ended. With it go-redis reads and writes a connection
// that it has, but cannot make a new one behind our back.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// session is the life of one connection.
func (r *subscriber) session(ctx context.Context) error {
	ps := r.client.Subscribe(ctx) // makes no connection yet
	defer func() { _ = ps.Close() }()
	defer r.silence()
	connect, cancel := context.WithTimeout(ctx, r.alive)
	defer cancel()
	if err := r.connect(connect, ps); err != nil {
		return err
	}
	over, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.leave = end
	r.mu.Unlock()
	var writer sync.WaitGroup
	writer.Go(func() {
		r.write(over, ps)
		_ = ps.Close() // ends the read
	})
	err := r.read(over, ps)
	end(err) // the first cause stands
	writer.Wait()
	return context.Cause(over)
}

// tuneIn makes the connection and subscribes to all that is wanted.
func (r *subscriber) connect(ctx context.Context, ps *redis.PubSub) error {
	if err := ps.Ping(ctx); err != nil { // connects
		return err
	}
	r.mu.Lock()
	r.failure = nil // that was of an earlier connection
	r.fresh, r.stale, r.sent, r.singly, r.refused = nil, nil, nil, false, nil
	for name, s := range r.channels {
		s.initial = true
		s.breaks++
		r.fresh = append(r.fresh, name)
	}
	r.missing = len(r.channels)
	r.sessions++
	own := r.probeChannelLocked()
	r.sent = append(r.sent, batch{[]string{own}, 1})
	r.mu.Unlock()
	if err := ps.Subscribe(endedContext, own); err != nil {
		return err
	}
	return r.sendChanges(ps)
}

// silence notes that nothing is heard any more.
func (r *subscriber) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own, r.leave = "", nil
	for _, s := range r.channels {
		if s.isOn {
			s.on, s.isOn = make(chan struct{}), false
		}
	}
}

// write sends what changes in the subscriptions, and a sign of life.
func (r *subscriber) write(ctx context.Context, ps *redis.PubSub) {
	ping := time.NewTicker(r.alive / 3)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-r.kick:
			err = r.sendChanges(ps)
		case <-ping.C:
			err = ps.Ping(endedContext)
			r.resubscribe()
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// retune sends what changed since.
func (r *subscriber) sendChanges(ps *redis.PubSub) error {
	var exact, globs, gone, goneGlobs []string
	r.mu.Lock()
	for _, name := range r.stale {
		if r.channels[name] != nil {
			continue // wanted again
		}
		if isPattern(name) {
			goneGlobs = append(goneGlobs, name)
		} else {
			gone = append(gone, name)
		}
	}
	for _, name := range r.fresh {
		switch s := r.channels[name]; {
		case s == nil:
		case s.pattern:
			globs = append(globs, name)
		default:
			exact = append(exact, name)
		}
	}
	r.fresh, r.stale = nil, nil
	most := 1000
	if r.singly {
		most = 1
	}
	r.mu.Unlock()

	for _, step := range []struct {
		names     []string
		subscribe bool
		send      func(context.Context, ...string) error
	}{{gone, false, ps.Unsubscribe}, {goneGlobs, false, ps.PUnsubscribe}, {exact, true, ps.Subscribe}, {globs, true, ps.PSubscribe}} {
		for names := range slices.Chunk(step.names, most) {
			if step.subscribe {
				r.mu.Lock()
				r.sent = append(r.sent, batch{names, len(names)})
				r.mu.Unlock()
			}
			if err := step.send(endedContext, names...); err != nil {
				return err
			}
		}
	}
	return nil
}

// read hands on what comes until the connection ends.
func (r *subscriber) read(ctx context.Context, ps *redis.PubSub) error {
	for {
		got, err := ps.ReceiveTimeout(endedContext, r.alive)
		if ctx.Err() != nil {
			return err
		}
		var refusal redis.Error
		switch {
		case err == nil:
		case errors.As(err, &refusal) && redis.HasErrorPrefix(err, "NOPERM"):
			if !strings.Contains(err.Error(), "'ping'") { // a refusal is a sign of life, too
				r.refuse(err)
			}
			continue
		default:
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				err = errors.New("no sign of life from the node's pub/sub connection")
			}
			return err
		}
		switch m := got.(type) {
		case *redis.Message:
			if !r.isProbeChannel(m.Channel) {
				r.heard(m)
			}
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				r.confirm(m.Channel)
			}
		}
	}
}

func (r *subscriber) confirm(name string) {
	r.mu.Lock()
	if len(r.sent) > 0 {
		if r.sent[0].left--; r.sent[0].left == 0 {
			r.sent = r.sent[1:]
		}
	}
	if name == r.probeChannelLocked() {
		r.own = name
	}
	s := r.channels[name]
	if s == nil || s.isOn {
		r.mu.Unlock()
		return
	}
	s.isOn = true
	close(s.on)
	begun := r.settleLocked(s) || !s.initial && r.missing == 0 && s.breaks != s.made
	r.mu.Unlock()
	r.tuned(name)
	if begun {
		r.begun()
	}
}

// refuse takes in that the channels of a command are not to be had, or one of them is
// not: then each is tried alone.
func (r *subscriber) refuse(err error) {
	r.mu.Lock()
	r.failure = err
	begun := false
	if len(r.sent) > 0 {
		names := r.sent[0].names
		r.sent = r.sent[1:]
		if len(names) > 1 {
			r.singly = true
			r.fresh = append(r.fresh, names...)
			r.signal()
		} else if s := r.channels[names[0]]; s != nil {
			r.refused = append(r.refused, names[0])
			begun = r.settleLocked(s)
		}
	}
	r.mu.Unlock()
	if begun {
		r.begun()
	}
}

// resubscribe asks again for what was refused.
func (r *subscriber) resubscribe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) > 0 {
		r.fresh, r.refused = append(r.fresh, r.refused...), nil
		r.signal()
	}
}

// broke notes that messages on a channel may have been lost.
func (r *subscriber) markInterrupted(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.channels[name]; s != nil {
		s.breaks++
	}
}

// broken returns the channels that are heard again and whose breaks are not made good, with how
// many breaks there were.
func (r *subscriber) interrupted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make(map[string]int)
	for name, s := range r.channels {
		if s.isOn && s.breaks != s.made {
			list[name] = s.breaks
		}
	}
	return list
}

// mend notes that so many breaks of a channel are made good.
func (r *subscriber) markCaughtUp(name string, breaks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.channels[name]; s != nil {
		s.made = breaks
	}
}

// names returns what is wanted.
func (r *subscriber) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.channels))
	for name := range r.channels {
		list = append(list, name)
	}
	return list
}

// drop unsubscribes from a channel.
func (r *subscriber) unsubscribe(name string) {
	begun := false
	r.mu.Lock()
	if s := r.channels[name]; s != nil {
		begun = r.removeLocked(name, s)
	}
	r.mu.Unlock()
	if begun {
		r.begun()
	}
}
