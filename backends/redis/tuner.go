package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// tuner is the server's ear at the masters: a radio each. In a cluster a message
// reaches every node, but PUBLISH in a script counts those who listen at its own: so
// channels of a mutex are listened to where the mutex lives, and the server's own
// everywhere. Safe for concurrent use.
type tuner struct {
	b     *Backend
	alive time.Duration

	mu       sync.Mutex // guards what follows, and each radio's retelling
	radios   map[*redis.Client]*radio
	patterns map[string]time.Time // of clients, and when last subscribed to
}

// lingering is how long a channel stays subscribed after it was wanted last.
const lingering = 10 * time.Second

// The globs that the channels of all mutexes match. Clients' own globs are judged
// here, not by Redis: two that overlap would bring a message twice.
const (
	noticeGlob = "simba:{*"
	eventGlob  = "simba-events:{*"
	// contenderGlob is for this server alone: the channels of all contenders. Simba up to 3.1
	// tells of a release on that of the next contender only, who may be no client of this server.
	// No channel has this name: the colon stands in brackets.
	contenderGlob = "simba:{*}[:]*"
)

func isPattern(name string) bool {
	return name == noticeGlob || name == eventGlob || name == contenderGlob
}

func newTuner(b *Backend) *tuner {
	return &tuner{
		b: b, alive: max(b.timeout, 300*time.Millisecond),
		radios: make(map[*redis.Client]*radio), patterns: make(map[string]time.Time),
	}
}

func (t *tuner) serverChannel() string { return "simba-server:" + t.b.id }

// begin connects the radios and waits until they hear what concerns this server.
func (t *tuner) begin(ctx context.Context) error {
	if err := t.followMasters(ctx); err != nil {
		return err
	}
	for _, r := range t.all() {
		if err := await(ctx, r, r.want(t.serverChannel(), false), 0); err != nil {
			return err
		}
	}
	if t.b.up.cluster != nil {
		t.b.tasks.start(func() {
			for t.b.tasks.ctx.Err() == nil {
				wait(t.b.tasks.ctx, time.Second)
				ctx, cancel := context.WithTimeout(t.b.tasks.ctx, t.b.timeout)
				_ = t.followMasters(ctx) // the next time, then
				cancel()
			}
		})
	}
	return nil
}

// attentive waits until the node of a mutex is known to pass on what others grant to
// waiters here. What it returns reports whether it has done so all the time since.
func (t *tuner) attentive(ctx context.Context, mutex string) (since func() bool, err error) {
	err = fmt.Errorf("no node is known for mutex %s", mutex)
	for {
		r := t.radioOf(ctx, simba.MutexChannel(mutex))
		if r != nil {
			on := r.want(t.serverChannel(), false)
			if err = await(ctx, r, on, redialPause); err == nil {
				return func() bool { return r.want(t.serverChannel(), false) == on && r.listens(t.serverChannel()) }, nil
			}
		} else if err := t.followMasters(ctx); err != nil { // a master that is new
			return nil, err
		} else {
			wait(ctx, redialPause)
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// hears reports whether the node of a mutex passes on what others grant to waiters here.
func (t *tuner) hears(mutex string) bool {
	r := t.radioOf(spent, simba.MutexChannel(mutex))
	return r != nil && r.listens(t.serverChannel())
}

// radioOf is the radio of the master that has a key, nil if it has none yet.
func (t *tuner) radioOf(ctx context.Context, key string) *radio {
	c, err := t.b.up.of(ctx, key)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.radios[c]
}

// await waits for a confirmation until ctx ends, or for some time (0 = as long as ctx).
func await(ctx context.Context, r *radio, on <-chan struct{}, some time.Duration) error {
	select {
	case <-on: // mostly
		return nil
	default:
	}
	if some > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, some)
		defer cancel()
	}
	select {
	case <-on:
		return nil
	case <-ctx.Done():
		if err := r.reason(); err != nil {
			return err
		}
		return fmt.Errorf("no confirmation of a subscription: %w", ctx.Err())
	}
}

func (t *tuner) all() []*radio {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*radio, 0, len(t.radios))
	for _, r := range t.radios {
		list = append(list, r)
	}
	return list
}

// followMasters gives each master a radio, and moves channels to where they belong.
func (t *tuner) followMasters(ctx context.Context) error {
	masters, err := t.b.up.masters(ctx)
	if err != nil {
		return err
	}
	var moved []string
	t.mu.Lock()
	for _, c := range masters {
		if t.radios[c] == nil {
			t.radios[c] = t.startLocked(c)
		}
	}
	for c, r := range t.radios {
		if !slices.Contains(masters, c) {
			r.stop()
			delete(t.radios, c)
			moved = append(moved, r.names()...)
		}
	}
	t.mu.Unlock()
	t.b.up.retain(masters)
	if t.b.up.cluster == nil {
		return nil
	}
	for _, r := range t.all() {
		for _, name := range r.names() {
			if home := t.home(name); home != nil && home != r && !isPattern(name) && name != t.serverChannel() {
				moved = append(moved, name)
				r.drop(name)
			}
		}
	}
	for _, name := range moved {
		if name == t.serverChannel() {
			continue
		}
		if r, _ := t.want(name); r != nil {
			r.broke(name)
		}
	}
	return nil
}

func (t *tuner) startLocked(c *redis.Client) *radio {
	r := newRadio(c, t.alive)
	r.heard, r.tuned, r.begun, r.server = t.heard, t.tuned, t.begun, t.serverChannel()
	r.want(t.serverChannel(), false)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.b.tasks.ctx)
	t.b.tasks.start(func() { r.run(ctx) })
	t.b.tasks.start(func() {
		r.watch(ctx, func(ctx context.Context, channel string) (listeners any, err error) {
			return t.b.up.eval(ctx, c, listenersLua, channel)
		})
	})
	return r
}

// close ends the radios' connections. Their goroutines end by the tasks.
func (t *tuner) close() {
	for _, r := range t.all() {
		r.stop()
	}
}

// home is the radio of the node that has a channel's slot, nil if none is known.
func (t *tuner) home(channel string) *radio {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.up.cluster != nil && !isPattern(channel) {
		if c, err := t.b.up.of(spent, channel); err == nil && t.radios[c] != nil {
			return t.radios[c]
		}
	}
	var first *radio
	for _, r := range t.radios {
		if first == nil || r.client.Options().Addr < first.client.Options().Addr {
			first = r
		}
	}
	return first
}

// want listens to a channel, without waiting for it.
func (t *tuner) want(channel string) (*radio, <-chan struct{}) {
	r := t.home(channel)
	if r == nil {
		return nil, nil
	}
	return r, r.want(channel, isPattern(channel))
}

// overhear listens to what tells of a release of a mutex by any program, since someone waits or
// listens here. It does not wait: what is missed until then is found by a look (tuned).
func (t *tuner) overhear(mutex string) {
	t.want(simba.MutexChannel(mutex))
	t.want(contenderGlob)
}

// listen listens to channels and waits for the nodes' confirmation.
func (t *tuner) listen(ctx context.Context, channels ...string) error {
	type pending struct {
		r  *radio
		on <-chan struct{}
	}
	var list []pending
	for _, c := range channels {
		r, on := t.want(c)
		if r == nil {
			return fmt.Errorf("no node is known for channel %s", c)
		}
		list = append(list, pending{r, on})
	}
	for _, p := range list {
		if err := await(ctx, p.r, p.on, 0); err != nil {
			return err
		}
	}
	return nil
}

// Subscribed implements simba.Backend.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	if b.tasks.ctx.Err() != nil {
		return 0, simba.ErrStopped
	}
	var channels []string
	var mutex, contender string
	if pattern {
		channels = b.tuner.patternWanted(channel)
	} else if m, c, ok := simba.ParseContenderChannel(channel); ok {
		mutex, contender, channels = m, c, []string{channel}
	} else if m, ok := simba.ParseMutexChannel(channel); ok {
		mutex, channels = m, []string{channel}
	} else if m, ok := simba.ParseEventChannel(channel); ok {
		// Tenures that begin without our scripts are announced on the mutex' channel only.
		mutex, channels = m, []string{channel, simba.MutexChannel(m)}
	}
	if len(channels) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.tuner.listen(ctx, channels...); err != nil {
		return 0, b.unavailable(err)
	}
	if mutex == "" {
		b.tuner.want(contenderGlob)
		return 0, nil
	}
	b.tuner.overhear(mutex)
	if contender != "" {
		_, err := b.assert(ctx, mutex, contender, nil)
		return 0, err
	}
	b.agenda.advance(mutex, time.Now()) // to learn when its lease ends
	return 0, nil
}

// patternWanted notes a client's glob and returns the globs of ours that it needs.
func (t *tuner) patternWanted(glob string) (needed []string) {
	fixed := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		fixed = glob[:i]
	}
	for _, g := range []string{noticeGlob, eventGlob} {
		prefix := strings.TrimSuffix(g, "*")
		if strings.HasPrefix(prefix, fixed) || strings.HasPrefix(fixed, prefix) {
			needed = append(needed, g)
		}
	}
	if len(needed) > 0 {
		t.mu.Lock()
		t.patterns[glob] = time.Now()
		t.mu.Unlock()
	}
	return needed
}

// sweep gives up the channels that nobody here needs any more, now and then.
func (b *Backend) sweep() {
	ticker := time.NewTicker(lingering)
	defer ticker.Stop()
	turned := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-b.tasks.ctx.Done():
			return
		}
		if time.Since(turned) > 2*b.timeout { // no reply is taken in so late
			turned = time.Now()
			b.mu.Lock()
			b.delivered.turn()
			b.told.turn()
			b.mu.Unlock()
		}
		b.tuner.sweep(time.Now().Add(-lingering))
	}
}

func (t *tuner) sweep(before time.Time) {
	needed := make(map[string]bool)
	if t.b.lobby.Len() > 0 {
		needed[contenderGlob] = true
	}
	for _, m := range t.b.lobby.Mutexes() {
		needed[simba.MutexChannel(m)] = true
	}
	t.mu.Lock()
	for glob, at := range t.patterns {
		if at.Before(before) && !t.b.notices.SubscribedPattern(glob) {
			delete(t.patterns, glob)
			continue
		}
		needed[noticeGlob], needed[eventGlob], needed[contenderGlob] = true, true, true
	}
	t.mu.Unlock()
	for _, r := range t.all() {
		for _, name := range r.names() {
			m, isEvent := simba.ParseEventChannel(name)
			if c, _, ok := simba.ParseContenderChannel(name); ok {
				m = c
			} else if !isEvent {
				m, _ = simba.ParseMutexChannel(name)
			}
			if m != "" && t.b.notices.Subscribed(name) {
				needed[simba.MutexChannel(m)], needed[contenderGlob] = true, true
			}
		}
	}
	for _, r := range t.all() {
		r.sweep(before, func(name string, pattern bool) bool {
			return name == t.serverChannel() || needed[name] || !pattern && t.b.notices.Subscribed(name)
		})
	}
}

// interested reports whether someone here wants to know when a mutex' lease ends.
func (t *tuner) interested(mutex string) bool {
	t.mu.Lock()
	any := len(t.patterns) > 0
	t.mu.Unlock()
	return any || t.b.notices.Subscribed(simba.MutexChannel(mutex)) || t.b.notices.Subscribed(simba.EventChannel(mutex))
}

// tuned looks after a mutex that someone waits for and whose channel is heard from now on, and after
// all of them if the channel is of all: what was told there before is lost, and waiters
// that nobody could reach were passed over.
func (t *tuner) tuned(channel string) {
	if channel == t.serverChannel() || channel == contenderGlob {
		for _, m := range t.b.lobby.Mutexes() {
			t.b.agenda.advance(m, time.Now())
		}
		return
	}
	if m, ok := simba.ParseMutexChannel(channel); ok && t.b.lobby.Count(m) > 0 {
		t.b.agenda.advance(m, time.Now())
	}
}

// begun looks after all that someone here waits for: while a connection was away,
// anything can have happened. Polling contenders whose channels were away are told again if it
// is their turn. One whose channel is new is not: Subscribed does that.
func (t *tuner) begun() {
	now := time.Now()
	for _, m := range t.b.lobby.Mutexes() {
		t.b.agenda.advance(m, now)
	}
	t.b.mu.Lock()
	var haunted []string
	for m := range t.b.ghosts {
		haunted = append(haunted, m)
	}
	t.b.mu.Unlock()
	for _, m := range haunted {
		t.b.agenda.advance(m, now)
	}
	for _, r := range t.all() {
		var polling []away
		for _, name := range r.names() {
			m, ok := simba.ParseMutexChannel(name)
			if !ok {
				m, _, ok = simba.ParseContenderChannel(name)
			}
			if ok {
				t.b.agenda.advance(m, now)
			}
		}
		for name, breaks := range r.broken() {
			if _, _, ok := simba.ParseContenderChannel(name); ok {
				polling = append(polling, away{name, breaks})
			} else {
				r.mend(name, breaks)
			}
		}
		t.retell(r, polling)
	}
}

// away is a channel on which messages may have been lost.
type away struct {
	name   string
	breaks int
}

// retell asserts contenders by their channels at one node, one after another.
func (t *tuner) retell(r *radio, channels []away) {
	t.mu.Lock()
	r.retelling++
	this := r.retelling
	t.mu.Unlock()
	if len(channels) == 0 {
		return
	}
	mutex, _, _ := simba.ParseContenderChannel(channels[0].name)
	t.b.background(mutex, func(ctx context.Context) {
		for len(channels) > 0 && ctx.Err() == nil {
			t.mu.Lock()
			over := r.retelling != this // the next list is on its way
			t.mu.Unlock()
			if over {
				return
			}
			a := channels[0]
			m, c, _ := simba.ParseContenderChannel(a.name)
			if t.b.lobby.Find(m, c) == nil && t.b.notices.Subscribed(a.name) {
				if _, err := t.b.assert(ctx, m, c, nil); err != nil {
					wait(ctx, retryAfter)
					continue
				}
			}
			r.mend(a.name, a.breaks)
			channels = channels[1:]
		}
	})
}
