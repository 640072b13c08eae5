package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
)

func isPattern(name string) bool { return name == noticeGlob || name == eventGlob }

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
		return 0, nil
	}
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
	t.mu.Lock()
	for glob, at := range t.patterns {
		if at.Before(before) && !t.b.notices.SubscribedPattern(glob) {
			delete(t.patterns, glob)
			continue
		}
		needed[noticeGlob], needed[eventGlob] = true, true
	}
	t.mu.Unlock()
	for _, r := range t.all() {
		r.sweep(before, func(name string, pattern bool) bool {
			return name == t.serverChannel() || needed[name] || !pattern && t.needs(name)
		})
	}
}

// needs reports whether someone here needs to hear a channel.
func (t *tuner) needs(channel string) bool {
	if t.b.notices.Subscribed(channel) {
		return true
	}
	if m, c, ok := simba.ParseContenderChannel(channel); ok {
		return t.b.lobby.Find(m, c) != nil
	}
	m, ok := simba.ParseMutexChannel(channel)
	return ok && t.b.notices.Subscribed(simba.EventChannel(m))
}

// interested reports whether someone here wants to know when a mutex' lease ends.
func (t *tuner) interested(mutex string) bool {
	t.mu.Lock()
	any := len(t.patterns) > 0
	t.mu.Unlock()
	return any || t.b.notices.Subscribed(simba.MutexChannel(mutex)) || t.b.notices.Subscribed(simba.EventChannel(mutex))
}

// tuned looks after the mutex of a waiter whose channel is heard from now on, and after
// all mutexes if it is the server's own: what was told there before is lost, and waiters
// that nobody could reach were passed over.
func (t *tuner) tuned(channel string) {
	if channel == t.serverChannel() {
		for _, m := range t.b.lobby.Mutexes() {
			t.b.agenda.advance(m, time.Now())
		}
		return
	}
	if m, c, ok := simba.ParseContenderChannel(channel); ok && t.b.lobby.Find(m, c) != nil {
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

// heard takes in a message. It must not wait: the radio hears nothing else meanwhile.
func (t *tuner) heard(m *redis.Message) {
	if m.Pattern != "" {
		if r := t.home(m.Channel); r != nil && r.listens(m.Channel) {
			return // it comes by its own name, too
		}
	}
	if m.Channel == t.serverChannel() {
		t.granted(m.Payload)
		return
	}
	if mutex, ok := simba.ParseEventChannel(m.Channel); ok {
		t.b.record(mutex, m.Payload)
		return
	}
	reached := t.b.notices.Publish(m.Channel, m.Payload)
	if mutex, ok := simba.ParseMutexChannel(m.Channel); ok {
		t.b.acquiredSomewhere(mutex, m.Payload)
		return
	}
	if mutex, contender, ok := simba.ParseContenderChannel(m.Channel); ok && m.Pattern == "" {
		t.b.turnOf(mutex, contender, reached)
	}
}

// granted takes in a grant that another server's script made: "mutex contender token
// ticket"; token 0 = the ticket has lost its place. An empty message only asks whether
// anyone listens.
func (t *tuner) granted(payload string) {
	f := strings.Split(payload, " ")
	if len(f) != 4 {
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return
	}
	if token == 0 {
		t.b.dismiss(f[0], f[1], f[3])
		return
	}
	t.b.background(f[0], func(ctx context.Context) { t.b.confirm(ctx, f[0], grant{contender: f[1], token: token, ticket: f[3]}) })
}

// record takes in an event that some script announced.
func (b *Backend) record(mutex, payload string) {
	var e struct {
		At                 int64
		Event, Mutex       string
		Owner, Reason, Via string
		Token              uint64
	}
	if json.Unmarshal([]byte(payload), &e) != nil || e.Mutex != mutex || eventKinds[e.Event] == 0 {
		return
	}
	if e.Via == b.id && e.Token == 0 {
		return // recorded from the reply; what has a token is known again by it
	}
	b.chronicle.Record(simba.Event{
		At: e.At, Kind: eventKinds[e.Event], Mutex: mutex, Owner: e.Owner, Token: e.Token, Reason: e.Reason,
	})
}

// acquiredSomewhere looks up a tenure that is announced and not known here: it may have
// begun without our scripts.
func (b *Backend) acquiredSomewhere(mutex, payload string) {
	owner, ok := strings.CutPrefix(payload, "acquired@@")
	if !ok {
		return
	}
	if last, ok := b.chronicle.Last(mutex); ok && last.Kind == simba.EventAcquired && last.Owner == owner {
		return
	}
	b.agenda.advance(mutex, time.Now().Add(foreignPause))
}

// foreignPause is left for the reply of a request of our own to tell of its tenure.
const foreignPause = 5 * time.Millisecond

// turnOf acts on a contender's having been told that the mutex is free: one that waits
// here takes it, and one that is not here lets the next have its turn.
func (b *Backend) turnOf(mutex, contender string, reached int) {
	switch {
	case b.lobby.Find(mutex, contender) != nil:
		b.agenda.advance(mutex, time.Now())
	case reached == 0:
		b.background(mutex, func(ctx context.Context) {
			_, _ = b.ask(ctx, mutex, passScript, contender, "0", "") // the window ends the turn else
		})
	}
}
