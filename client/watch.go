package client

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// State is what Watch has seen of a mutex: its present state, or one change.
type State struct {
	// Owner is the owner after the change; the zero Owner means that the mutex is free. Only a
	// present state has the windows of the lease.
	Owner Owner
	// Event is the change: acquired, released, expired or broken. "" means a present state: the
	// first one, or the one after a Gap.
	Event  string
	Reason string    // why, see the reference of notices; often ""
	At     time.Time // when the change was made, by the server's clock; zero for a present state
	// Seq is the number of the change. A server gives later changes larger numbers.
	Seq uint64
	// Gap says that changes before this present state may be missing: the server was restarted, the
	// Client has reached another one, or the server's history does not continue what was seen.
	Gap bool
}

const (
	// watchEvery is how often Watch asks without a notice.
	watchEvery = 15 * time.Second
	// watchMost is how many changes the server returns at most.
	watchMost = 10_000
)

// Watch observes the owner of a mutex and does not contend for it. It yields the present state
// first, and then each change in order. A slow loop misses none, as long as the server keeps them in
// its history, and they are less than 10,000. The history is that of all mutexes of the server. When
// Watch sees that changes are missing, it yields the present state with Gap set.
//
//	var last uint64 // the token of the last leader
//	for s, err := range c.Watch(ctx, "report") {
//		switch {
//		case err != nil:
//			log.Print(err) // Watch goes on
//		case s.Owner.Token > last:
//			last = s.Owner.Token
//			fmt.Println(s.Owner.ID, "leads")
//		}
//	}
//
// Watch yields each error once, with the zero State, and tries again. It asks at least every 15 s, so
// it may see so late that the server does not answer. It ends when ctx ends, without an error.
// ErrClosed ends it, too, after it was yielded. Without the right to INFO,
// Watch sees a restart of the server only if the owner differs.
func (c *Client) Watch(ctx context.Context, mutex string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		if err := c.callable(ctx); ctx == nil || errors.Is(err, ErrClosed) {
			yield(State{}, err)
			return
		}
		w := &watcher{c: c, mutex: mutex, wake: make(chan struct{}, 1)}
		defer w.unsubscribe()
		pause, text := retryPause, ""
		for ctx.Err() == nil {
			states, err := w.read(ctx)
			for _, s := range states {
				if !yield(s, nil) {
					return
				}
			}
			d := watchEvery
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				d, pause = pause, min(2*pause, retryPauseMax)
				before := text
				text = err.Error()
				if errors.Is(err, ErrUnavailable) { // the errors of an outage differ
					text = ErrUnavailable.Error()
				}
				if text != before && !yield(State{}, err) || errors.Is(err, ErrClosed) {
					return
				}
			default:
				w.subscribe()
				pause, text = retryPause, ""
				if w.differs || c.subscriptions.denied.Load() {
					d = pollMax
				}
			}
			if err := c.sleep(ctx, d, w.wake); errors.Is(err, errClientClosed) {
				yield(State{}, err)
				return
			}
		}
	}
}

// watcher reads the changes of one mutex. Notices only wake it: the server's history has what it
// yields, so no notice can be lost.
type watcher struct {
	c        *Client
	mutex    string
	wake     chan struct{} // has an element after a notice
	listener *listener     // nil = the server has not accepted a read yet

	runID   string // of the server's run that counts seq; "" = not known yet
	seq     uint64 // of the last change
	owner   Owner  // after it
	newest  uint64 // the largest token so far; 0 = not known
	differs bool   // the server has reported another owner in the last read
}

// subscribe subscribes to the events of the mutex, and makes Watch read again when the server has
// confirmed that. If the user may not read the mutex, a SUBSCRIBE would break the connection for
// all notices of the Client.
func (w *watcher) subscribe() {
	if w.listener == nil {
		w.listener = w.c.subscriptions.add(w.notified, names.EventChannel(w.mutex))
	}
}

func (w *watcher) unsubscribe() {
	if w.listener != nil {
		w.c.subscriptions.remove(w.listener)
	}
}

func (w *watcher) notified(notice) {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// view is what the server says in one read.
type view struct {
	runID   string
	changes []State
	last    uint64 // seq of the last event of any kind
	full    bool   // the server may have left out older events
	owner   Owner  // after the changes, or later
}

// read returns what is new.
func (w *watcher) read(ctx context.Context) ([]State, error) {
	if w.runID == "" {
		return w.restart(ctx)
	}
	v, err := w.ask(ctx, "since", w.seq)
	if err != nil {
		return nil, err
	}
	if v.full || v.runID != w.runID { // another run counts seq anew
		return w.restart(ctx)
	}
	var list []State
	for _, s := range v.changes {
		acquired := s.Event == names.EventAcquired
		follows := w.owner.IsZero() == acquired
		switch token := s.Owner.Token; {
		case token < w.newest, token == w.newest && !follows, w.newest == 0 && !acquired:
			w.newest = max(w.newest, token) // older than the present state that was read
			continue
		case token > w.newest == acquired && follows:
		default: // the server does not keep the changes before this one any more
			return w.restart(ctx)
		}
		w.newest = s.Owner.Token
		if !acquired {
			s.Owner = Owner{}
		}
		w.owner = s.Owner
		list = append(list, s)
	}
	w.seq = max(w.seq, v.last)
	// The owner may be newer than the changes. But then the next read has a change.
	before := w.differs
	w.differs = v.owner.Token != w.owner.Token
	if before && w.differs && len(list) == 0 {
		return w.restart(ctx)
	}
	return list, nil
}

// restart reads the present state.
func (w *watcher) restart(ctx context.Context) ([]State, error) {
	v, err := w.ask(ctx, "count", 1)
	if err != nil {
		return nil, err
	}
	gap := w.runID != ""
	w.runID, w.seq, w.owner, w.newest, w.differs = v.runID, v.last, v.owner, v.owner.Token, false
	return []State{{Owner: v.owner, Seq: v.last, Gap: gap}}, nil
}

// ask asks for the run of the server, for its history, and then for the owner, so that the owner is
// not older.
func (w *watcher) ask(ctx context.Context, option string, value any) (v view, err error) {
	if v.runID, err = w.c.runID(ctx); err != nil {
		return v, err
	}
	history := redis.NewMapStringInterfaceSliceCmd(ctx, "simba.history", w.mutex, option, value)
	if err = w.c.ask(ctx, w.c.timeout, history); err != nil {
		return v, err
	}
	list := history.Val()
	v.full = len(list) >= watchMost
	for _, values := range list {
		r := record{values: values}
		s := State{
			Owner: Owner{ID: r.text("owner"), Token: uint64(r.number("token"))},
			Event: r.text("event"), Reason: r.text("reason"), At: r.moment("at"), Seq: uint64(r.number("seq")),
		}
		if r.fault != nil {
			return v, r.fault
		}
		v.last = max(v.last, s.Seq)
		if s.Event != names.EventQueued && s.Event != names.EventLeft {
			v.changes = append(v.changes, s)
		}
	}
	v.owner, err = w.c.owner(ctx, w.mutex)
	return v, err
}

// runID returns the server's id of its present run.
func (c *Client) runID(ctx context.Context) (string, error) {
	info := redis.NewStringCmd(ctx, "info", "server")
	err := c.ask(ctx, c.timeout, info)
	if refused(err) {
		if !c.infoDenied.Swap(true) {
			c.log.Warn("the server refuses INFO, so Watch may not notice that the server was restarted", "err", err)
		}
		return "unknown", nil // without the right, only a different owner shows a restart
	}
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(info.Val(), "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	if !found || id == "" {
		return "", errors.New("INFO has no run_id: not a simba-resp server?")
	}
	return id, nil
}
