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
// ErrClosed ends it, too, after it was yielded. Without the right to INFO, Watch sees a restart of
// the server only if the owner differs.
func (c *Client) Watch(ctx context.Context, mutex string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		w := &watcher{c: c, mutex: mutex, wake: make(chan struct{}, 1)}
		defer func() { c.subscriptions.remove(w.listener) }()
		for before := ""; ; {
			states, err := w.read(ctx)
			if ctx != nil && err != nil && ctx.Err() != nil {
				return
			}
			for _, s := range states {
				if !yield(s, nil) {
					return
				}
			}
			d, text := watchEvery, ""
			switch {
			case err != nil:
				d, text = retryPauseMax, err.Error()
				if errors.Is(err, ErrUnavailable) { // the errors of an outage differ
					text = ErrUnavailable.Error()
				}
				if text != before {
					d = retryPause
					if !yield(State{}, err) || ctx == nil || errors.Is(err, ErrClosed) {
						return
					}
				}
			default:
				w.subscribe()
				if w.differs || c.subscriptions.denied.Load() {
					d = pollMax
				}
			}
			before = text
			_ = c.sleep(ctx, d, w.wake) // read returns its error, too
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
	newest  uint64 // the largest token so far
	differs bool   // the server has reported another owner in the last read
	gap     bool   // changes are missing: only the present state can follow
}

// subscribe subscribes to the events of the mutex, and makes Watch read again when the server has
// confirmed that. Watch calls it after a read: if the user may not read the mutex, a SUBSCRIBE would
// break the connection for all notices of the Client.
func (w *watcher) subscribe() {
	if w.listener == nil {
		w.listener = w.c.subscriptions.add(w.notified, names.EventChannel(w.mutex))
	}
}

func (w *watcher) notified(notice) { poke(w.wake) }

// view is what the server says in one read.
type view struct {
	runID  string
	events []State // of any kind; Owner is the contender of the event
	owner  Owner   // after the events, or later
}

// read returns what is new: the changes since the last read, or the present state.
func (w *watcher) read(ctx context.Context) ([]State, error) {
	if err := w.c.callable(ctx); err != nil {
		return nil, err
	}
	if w.runID != "" && !w.gap {
		v, err := w.ask(ctx, "since", w.seq)
		if err != nil {
			return nil, err
		}
		list, ok := w.follow(v)
		if ok {
			return list, nil
		}
		w.gap = true
	}
	v, err := w.ask(ctx, "count", 1)
	if err != nil {
		return nil, err
	}
	gap := w.gap
	w.runID, w.seq, w.owner, w.newest, w.differs, w.gap = v.runID, 0, v.owner, v.owner.Token, false, false
	for _, e := range v.events {
		w.seq, w.newest = e.Seq, max(w.newest, e.Owner.Token)
	}
	return []State{{Owner: w.owner, Seq: w.seq, Gap: gap}}, nil
}

// follow returns the changes in a view. It returns false if changes are missing.
func (w *watcher) follow(v view) (list []State, ok bool) {
	if v.runID != w.runID || len(v.events) >= watchMost { // another run counts seq anew
		return nil, false
	}
	for _, e := range v.events {
		w.seq = e.Seq
		token, begins := e.Owner.Token, e.Event == names.EventAcquired
		switch {
		case begins && token > w.newest && w.owner.IsZero():
			w.owner = e.Owner
		case !begins && token != 0 && token == w.owner.Token:
			w.owner = Owner{}
		case token > w.newest: // the server does not keep the change before this one any more
			return nil, false
		default: // of the queue, or older than the present state that was read
			continue
		}
		e.Owner, w.newest = w.owner, token
		list = append(list, e)
	}
	// The owner may be newer than the changes. But then the next read has a change.
	before := w.differs
	w.differs = v.owner.Token != w.owner.Token
	return list, !before || !w.differs || len(list) != 0
}

// ask asks for the run of the server, for its history, and then for the owner, so that the owner is
// not older.
func (w *watcher) ask(ctx context.Context, option string, value any) (v view, err error) {
	if v.runID, err = w.c.runID(ctx); err != nil {
		return v, err
	}
	history := redis.NewMapStringInterfaceSliceCmd(ctx, "simba.history", w.mutex, option, value)
	if err = w.c.ask(ctx, w.c.timeout, true, history); err != nil {
		return v, err
	}
	for _, values := range history.Val() {
		r := record{values: values}
		v.events = append(v.events, State{
			Owner: Owner{ID: r.text("owner"), Token: uint64(r.number("token"))},
			Event: r.text("event"), Reason: r.text("reason"), At: r.moment("at"), Seq: uint64(r.number("seq")),
		})
		if r.fault != nil {
			return v, r.fault
		}
	}
	v.owner, err = w.c.owner(ctx, w.mutex)
	return v, err
}

// runID returns the server's id of its present run.
func (c *Client) runID(ctx context.Context) (string, error) {
	info := redis.NewStringCmd(ctx, "info", "server")
	err := c.ask(ctx, c.timeout, true, info)
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
