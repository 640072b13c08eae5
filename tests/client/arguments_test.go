package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/client/registry"
)

func TestANilOptionHasNoEffect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		f := func(context.Context) error { return client.Final(nil) }
		must(t, g.Do(bg, "job", func(context.Context) error { return nil }, nil))
		must(t, g.Lead(bg, "job", f, nil))
		must(t, g.Every(bg, "job", client.Schedule{Period: time.Second}, f, nil, client.WithTTL(time.Second)))
	})
}

func TestANilContextIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		f := func(context.Context) error { t.Error("the work runs"); return nil }
		var none context.Context
		k, err := contend.New(g.Client, "job", 0, func(context.Context) {}, nil)
		must(t, err)
		r := g.registry(t, registry.Config{})
		manual, err := g.Lock(bg, "another", client.WithoutRenewal())
		must(t, err)
		for name, call := range map[string]func() error{
			"Do":            func() error { return g.Do(none, "job", f) },
			"TryDo":         func() error { return g.TryDo(none, "job", f) },
			"Lock":          func() error { _, err := g.Lock(none, "job"); return err },
			"TryLock":       func() error { _, err := g.TryLock(none, "job"); return err },
			"Lead":          func() error { return g.Lead(none, "job", f) },
			"Every":         func() error { return g.Every(none, "job", client.Schedule{Period: 1}, f) },
			"Owner":         func() error { _, err := g.Owner(none, "job"); return err },
			"Check":         func() error { _, err := g.Check(none, "job", 1); return err },
			"Renew":         func() error { return manual.Renew(none) },
			"Unlock":        func() error { return w.lock(w.client()).Unlock(none) },
			"Contender.Run": func() error { return k.Run(none) },
			"Registry.Lock": func() error { return obtain(t, r, "x").Lock(none, r.NewHolder()) },
			"TryLockFor": func() error {
				_, err := obtain(t, r, "x").TryLockFor(none, r.NewHolder(), time.Second)
				return err
			},
			"Watch": func() (err error) {
				for _, err = range g.Watch(none, "job") {
				}
				return err
			},
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "ctx is nil") {
				t.Errorf("%s returns %v, want that ctx is nil", name, err)
			}
		}
		time.Sleep(time.Second)
		w.nothingLeft("job") // Unlock has released it
	})
}

func TestTheZeroLockSaysThatItIsNotLocked(t *testing.T) {
	for name, call := range map[string]func(l *client.Lock){
		"Context": func(l *client.Lock) { l.Context() },
		"Token":   func(l *client.Lock) { l.Token() },
		"Owner":   func(l *client.Lock) { l.Owner() },
		"Renew":   func(l *client.Lock) { _ = l.Renew(bg) },
		"Unlock":  func(l *client.Lock) { _ = l.Unlock(bg) },
	} {
		for _, l := range []*client.Lock{nil, {}} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.Contains(got, "the zero Lock is not locked") {
						t.Errorf("%s panics with %s, want that the Lock is not locked", name, got)
					}
				}()
				call(l)
			}()
		}
	}
}

func TestCloseNamesTheWorkThatHasNotReturned(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		go func() { _ = g.Do(bg, "job", func(context.Context) error { time.Sleep(time.Minute); return nil }) }()
		time.Sleep(time.Second)
		at := w.elapsed()
		if err := g.Close(); err == nil || !strings.Contains(err.Error(), "the work of job has not returned") || errors.Is(err, client.ErrUnavailable) || w.elapsed()-at != timeout {
			t.Errorf("Close returns %v after %v, want that the work of job has not returned", err, w.elapsed()-at)
		}
		time.Sleep(time.Minute)
		w.nothingLeft("job")
		g = w.client()
		w.lock(g)
		g.silence()
		if err := g.Close(); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("Close returns %v while the server does not answer, want ErrUnavailable", err)
		}
	})
}
