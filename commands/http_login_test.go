package commands

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAuthorizeDelaysWrongPasswordsAsAUTHDoes(t *testing.T) {
	guarded(t, func(t *testing.T, s *site) {
		guess := Credentials{Given: true, Password: "guess", RemoteAddr: "192.0.2.1:1000"}
		authorize := func(c Credentials) (time.Duration, error) {
			began := time.Now()
			err := s.x.Authorize(t.Context(), c, "info")
			return time.Since(began), err
		}
		for i, ms := range []int{0, 0, 0, 100, 200} {
			if took, err := authorize(guess); took != time.Duration(ms)*time.Millisecond || !errors.Is(err, ErrNotAuthenticated) {
				t.Errorf("guess %d: %v after %v, want %d ms", i+1, err, took, ms)
			}
		}
		if d := took(s.dialFrom("192.0.2.1:2000"), "AUTH guess", wrongPass); d != 400*time.Millisecond {
			t.Errorf("the next guess by AUTH took %v", d)
		}
		right := Credentials{Given: true, Password: "sesam", RemoteAddr: "192.0.2.1:3000"}
		if took, err := authorize(right); took != 0 || err != nil {
			t.Errorf("the right one: %v after %v", err, took)
		}
		if took, err := authorize(Credentials{RemoteAddr: "192.0.2.1:4000"}); took != 0 || !errors.Is(err, ErrNotAuthenticated) {
			t.Errorf("without credentials: %v after %v", err, took)
		}
		s.dialFrom("192.0.2.1:5000").expect("AUTH sesam", ok)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := s.x.Authorize(ctx, guess, "info"); !errors.Is(err, ErrNotAuthenticated) || time.Since(began) != 0 {
			t.Errorf("a client that left: %v after %v", err, time.Since(began))
		}
	})
}

func TestAuthorizeWithoutUsersServesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{})
		if err := s.x.Authorize(t.Context(), Credentials{RemoteAddr: "192.0.2.1:1000"}, "config|get"); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionsAreCountedWhileALeaseIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineSite(t)
		sessions := func() int64 { synctest.Wait(); return s.x.Stats().Sessions }
		p := s.dial()
		p.do("SIMBA.ACQUIRE m a 60000 SESSION")
		p.do("SIMBA.ACQUIRE n a 60000 SESSION")
		if n := sessions(); n != 1 {
			t.Errorf("with two leases: %d", n)
		}
		p.do("SIMBA.RELEASE m a")
		if n := sessions(); n != 1 {
			t.Errorf("with one lease: %d", n)
		}
		p.do("SIMBA.RELEASE n a")
		if n := sessions(); n != 0 {
			t.Errorf("without a lease: %d", n)
		}
		p.do("SIMBA.ACQUIRE m a 60000 SESSION")
		p.nc.Close()
		if n := sessions(); n != 0 {
			t.Errorf("after the connection: %d", n)
		}
	})
}
