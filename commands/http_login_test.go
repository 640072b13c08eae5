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
				t.Errorf("guess %d returned %v after %v, want ErrNotAuthenticated after %d ms", i+1, err, took, ms)
			}
		}
		if d := took(s.dialFrom("192.0.2.1:2000"), "AUTH guess", wrongPass); d != 400*time.Millisecond {
			t.Errorf("the next guess by AUTH took %v, want 400ms", d)
		}
		right := Credentials{Given: true, Password: "sesam", RemoteAddr: "192.0.2.1:3000"}
		if took, err := authorize(right); took != 0 || err != nil {
			t.Errorf("the right password returned %v after %v, want nil at once", err, took)
		}
		if took, err := authorize(Credentials{RemoteAddr: "192.0.2.1:4000"}); took != 0 || !errors.Is(err, ErrNotAuthenticated) {
			t.Errorf("without credentials Authorize returned %v after %v, want ErrNotAuthenticated at once", err, took)
		}
		s.dialFrom("192.0.2.1:5000").expect("AUTH sesam", ok)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := s.x.Authorize(ctx, guess, "info"); !errors.Is(err, ErrNotAuthenticated) || time.Since(began) != 0 {
			t.Errorf("for a client that has left, Authorize returned %v after %v, want ErrNotAuthenticated at once", err, time.Since(began))
		}
	})
}

func TestAuthorizeWithoutUsersServesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{})
		if err := s.x.Authorize(t.Context(), Credentials{RemoteAddr: "192.0.2.1:1000"}, "config|get"); err != nil {
			t.Errorf("without users Authorize returned %v, want nil", err)
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
			t.Errorf("%d sessions are counted with two leases, want 1", n)
		}
		p.do("SIMBA.RELEASE m a")
		if n := sessions(); n != 1 {
			t.Errorf("%d sessions are counted with one lease, want 1", n)
		}
		p.do("SIMBA.RELEASE n a")
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions are counted without a lease, want 0", n)
		}
		p.do("SIMBA.ACQUIRE m a 60000 SESSION")
		p.nc.Close()
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions are counted after the end of the connection, want 0", n)
		}
	})
}
