package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestDroppingAKeyHandsTheMutexOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", simba.Endless)) })
		b := w.block("m", "b", 3*sec, sec)
		w.commit(func(tx simba.Tx) { tx.Drop("m") })
		if o := b.granted(); o.Owner != "b" || o.Transition != 4*sec {
			w.t.Errorf("b was granted %+v; want b as the owner, with its windows", o)
		}
		if got, want := w.history("m"), []string{"acquired a", "queued b", "released a", "acquired b"}; !slices.Equal(got, want) {
			w.t.Errorf("history %q, want the release before b's tenure", got)
		}
	})
}

func TestAKeyThatIsChangedAgainAndAgainIsChangedOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", sec)) })
		before := w.lock("m")
		for _, c := range []struct {
			what    string
			changes []op
			want    simba.Lock
		}{
			{"a value and a lease, twice", []op{{lock: str("b", 2*sec), renew: true}, {lock: str("c", 3*sec), renew: true}}, str("c", 3*sec)},
			{"a value and a lease, then a value", []op{{lock: str("d", 4*sec), renew: true}, {lock: str("e", 9*sec)}}, str("e", 4*sec)},
			{"a value, then a value and a lease", []op{{lock: str("f", 9*sec)}, {lock: str("g", 5*sec), renew: true}}, str("g", 5*sec)},
			{"a value, twice", []op{{lock: str("h", 9*sec)}, {lock: str("i", 8*sec)}}, str("i", 5*sec)},
			{"an endless lease, then a lease that ends", []op{{lock: str("j", simba.Endless), renew: true}, {lock: str("j", 6*sec), renew: true}}, str("j", 6*sec)},
			{"a lease that ends, then an endless lease, then a value", []op{{lock: str("k", 6*sec), renew: true}, {lock: str("k", simba.Endless), renew: true}, {lock: str("l", sec)}}, str("l", simba.Endless)},
		} {
			w.commit(func(t simba.Tx) {
				for _, o := range c.changes {
					t.Change("m", o.lock, o.renew)
				}
				if n := len(t.(*tx).first.work); n != 1 {
					w.t.Errorf("%s: %d ops, want 1", c.what, n)
				}
				if l := t.Lock("m"); l.Owner != c.want.Owner || l.TTL != c.want.TTL {
					w.t.Errorf("%s: the transaction sees %+v, want %+v", c.what, l, c.want)
				}
			})
			if l := w.lock("m"); l.Owner != c.want.Owner || l.TTL != c.want.TTL || l.Token != before.Token {
				w.t.Errorf("%s: lock %+v, want %+v in the tenure %d", c.what, l, c.want, before.Token)
			}
		}
		w.commit(func(tx simba.Tx) {
			tx.Change("m", str("n", sec), true)
			tx.Take("m", str("o", sec))
			tx.Change("m", str("p", 7*sec), true)
		})
		if l := w.lock("m"); l.Owner != "p" || l.TTL != 7*sec || l.Token == before.Token {
			w.t.Errorf("a transaction called Change, Take and Change: the lock is %+v, want owner p for 7 s with a new token", l)
		}
	})
}

func TestALeaseMayBeLongOrWithoutEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		const year = 365 * 24 * time.Hour
		w.commit(func(tx simba.Tx) {
			tx.Take("long", str("a", 2*year))
			tx.Take("endless", str("", simba.Endless))
		})
		time.Sleep(2*year - 1)
		if l := w.lock("long"); l.TTL != time.Millisecond {
			w.t.Errorf("long lock a nanosecond before its end: %+v; want 1 ms left", l)
		}
		time.Sleep(time.Nanosecond)
		if w.lock("long").Exists() || !w.lock("endless").Exists() {
			w.t.Error("the long lock has not ended, or the endless one has")
		}
		if o := w.owner("endless"); o.Transition != simba.MaxTTL || o.TransitionAt != o.Now+simba.MaxTTL.Milliseconds() {
			w.t.Errorf("owner of the endless lock: %+v; want MaxTTL left", o)
		}
		if o := w.acquire("endless", "b", sec, 0); o.Transition != simba.MaxTTL {
			w.t.Errorf("Acquire by b returns %+v, want MaxTTL as its Transition", o)
		}
		time.Sleep(longestLapse + testGrace - 1)
		if got := w.queue("endless"); !slices.Equal(got, []string{"b"}) {
			w.t.Errorf("queue %q, want b alone", got)
		}
		time.Sleep(time.Nanosecond)
		if got := w.queue("endless"); len(got) != 0 {
			w.t.Errorf("queue %q after b has lapsed, want nobody", got)
		}
		w.commit(func(tx simba.Tx) { tx.Change("endless", simba.Lock{EndsAt: tx.Now().UnixMilli() + 1500}, true) })
		time.Sleep(1500 * time.Millisecond)
		if w.lock("endless").Exists() {
			w.t.Error("the lock did not end at EndsAt")
		}
	})
}

func TestDuringTheRecoveryDelayNoKeyIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 5 * sec})
		tx := w.e.beginTx()
		if tx.MayTake("m", "a") {
			t.Error("MayTake is true during the recovery delay")
		}
		tx.Take("m", str("a", sec))
		if _, err := tx.commit(); !errors.Is(err, simba.ErrRecovering) {
			t.Errorf("commit returned %v, want ErrRecovering", err)
		}
		time.Sleep(5 * sec)
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", sec)) })
	})
}
