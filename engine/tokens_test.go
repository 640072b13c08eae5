package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestATransactionLearnsTheTokenOfTheTenureThatItBegins(t *testing.T) {
	for name, begin := range map[string]func(tx simba.Tx) uint64{
		"taken, then NextToken": func(tx simba.Tx) uint64 {
			tx.Take("m", str("a", sec))
			return tx.NextToken("m")
		},
		"NextToken, then taken": func(tx simba.Tx) uint64 {
			n := tx.NextToken("m")
			tx.Take("m", str("a", sec))
			return n
		},
		"taken, then Token": func(tx simba.Tx) uint64 {
			tx.Take("m", str("a", sec))
			return tx.Token("m")
		},
		"taken, then Fence": func(tx simba.Tx) uint64 {
			tx.Take("m", str("a", sec))
			return tx.Fence("m")
		},
		"taken, then NextToken twice": func(tx simba.Tx) uint64 {
			tx.Take("m", str("a", sec))
			tx.NextToken("m")
			return tx.NextToken("m")
		},
		"taken again": func(tx simba.Tx) uint64 {
			tx.Take("m", str("x", sec))
			tx.Drop("m")
			tx.Take("m", str("a", sec))
			return tx.NextToken("m")
		},
		"taken from another": func(tx simba.Tx) uint64 {
			tx.Take("m", str("x", sec))
			first := tx.NextToken("m")
			tx.Take("m", str("a", sec))
			if n := tx.Token("m"); n > first {
				return n
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				last := w.acquire("m", "before", sec, 0).Token
				w.release("m", "before")
				var begun, seen uint64
				w.commit(func(tx simba.Tx) {
					begun = begin(tx)
					seen = tx.Token("m")
				})
				if o := w.owner("m"); o.Owner != "a" || o.Token != begun || seen != begun || begun <= last {
					t.Errorf("the transaction learned token %d, then Token returned %d; tenure %+v; want one token, larger than %d", begun, seen, o, last)
				}
				events, _, _ := w.e.History(context.Background(), simba.HistoryRequest{Mutex: "m", Count: 100})
				for _, e := range events {
					if e.Kind == simba.EventAcquired && e.Token < last {
						t.Errorf("token %d after token %d; want a larger one", e.Token, last)
					}
					last = max(last, e.Token)
				}
				w.release("m", "a")
				if o := w.acquire("m", "after", sec, 0); o.Token <= begun {
					t.Errorf("the next tenure has token %d, want more than %d", o.Token, begun)
				}
			})
		})
	}
}

func TestAReservedTokenIsOnlyUsedIfTheMutexHasNotChanged(t *testing.T) {
	inBubble(t, func(w *world) {
		tx := w.e.beginTx()
		tx.Take("m", str("a", sec))
		reserved := tx.NextToken("m")
		between := w.acquire("m", "b", sec, 0).Token
		w.release("m", "b")
		conflicts(w.t, tx)
		w.commit(func(tx simba.Tx) {
			tx.Take("m", str("a", sec))
			reserved = tx.NextToken("m")
		})
		if o := w.owner("m"); o.Token != reserved || reserved <= between {
			w.t.Errorf("tenure has token %d, NextToken returned %d; want one token, larger than %d", o.Token, reserved, between)
		}
	})
}

func TestATransactionThatOnlyCountsChangesNoTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.acquire("m", "a", time.Hour, 0).Token
		var n uint64
		w.commit(func(tx simba.Tx) {
			n = tx.NextToken("m")
			if tx.Token("m") != a || tx.Fence("m") != n {
				w.t.Errorf("Token is %d and Fence %d after NextToken, want %d and %d", tx.Token("m"), tx.Fence("m"), a, n)
			}
		})
		if o := w.owner("m"); o.Token != a || n <= a {
			w.t.Errorf("the tenure has token %d, want %d, less than %d of NextToken", o.Token, a, n)
		}
		w.release("m", "a")
		if o := w.acquire("m", "b", sec, 0); o.Token <= n {
			w.t.Errorf("the next tenure has token %d, want more than %d of NextToken", o.Token, n)
		}
	})
}

func TestATokenStaysUntilItIsDroppedBesideItsLock(t *testing.T) {
	inBubble(t, func(w *world) {
		token := w.acquire("m", "a", time.Hour, 0).Token
		w.commit(func(tx simba.Tx) {
			if tx.DropToken("m"); tx.Token("m") != 0 {
				w.t.Error("after DropToken, Token is not 0")
			}
			if m, kept := tx.DroppedToken(); m != "m" || !kept {
				w.t.Error("DroppedToken does not return m")
			}
			if tx.Drop("m"); tx.Token("m") != 0 {
				w.t.Error("after DropToken and Drop, Token is not 0")
			}
			tx.Discard()
			if tx.Drop("m"); tx.Token("m") != token {
				w.t.Errorf("after Drop, Token is not %d", token)
			}
			if tx.DropToken("m"); tx.Token("m") != 0 {
				w.t.Error("after DropToken, Token is not 0")
			}
			if m, kept := tx.DroppedToken(); kept {
				w.t.Errorf("DroppedToken returned %s, which has no tenure", m)
			}
		})
		w.commit(func(tx simba.Tx) {
			if tx.Token("m") != 0 || tx.Fence("m") != token {
				w.t.Errorf("Token of a free mutex is %d, Fence %d; want 0 and %d", tx.Token("m"), tx.Fence("m"), token)
			}
		})
	})
}

func TestATokenIsNotShownBeforeACrashCannotRepeatIt(t *testing.T) {
	for name, ask := range map[string]func(tx simba.Tx) uint64{
		"drawn by NextToken": func(tx simba.Tx) uint64 { return tx.NextToken("m") },
		"read by Fence":      func(tx simba.Tx) uint64 { return tx.Fence("m") },
		"drawn for a tenure that is over": func(tx simba.Tx) uint64 {
			tx.Take("m", str("a", sec))
			n := tx.NextToken("m")
			tx.Drop("m")
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				w := newWorldOn(t, g, Recovery{Token: 7})
				tx := w.e.beginTx()
				defer tx.end()
				shown := ask(tx)
				seq, err := tx.commit()
				if err != nil {
					t.Fatal(err)
				}
				committed := commits(w.e, seq)
				if committed() {
					t.Errorf("the commit of the transaction that learned token %d returned before the fsync", shown)
				}
				if last := g.changes[len(g.changes)-1]; last.Token != shown {
					t.Errorf("the last change in the journal is %+v, want token %d", last, shown)
				}
				g.set(true)
				if !committed() {
					t.Error("the commit of the transaction does not return after the fsync")
				}
			})
		})
	}
}
