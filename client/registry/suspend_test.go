package registry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/suspend"
	"github.com/simba-resp/simba-resp/client/registry"
)

// Unlock reads the clock and finds that the lease has ended, though no timer has fired.
func TestUnlockAfterASuspendReturnsErrLost(t *testing.T) {
	for _, mode := range []registry.Mode{registry.Notified, registry.Spin} {
		t.Run(mode.String(), func(t *testing.T) {
			c, done := connect()
			defer done()
			r, err := registry.New(c, registry.Config{Prefix: "suspend", Mode: mode})
			check(err)
			defer func() { check(r.Close()) }()
			l, err := r.Obtain("x")
			check(err)
			h := r.NewHolder()
			check(l.Lock(t.Context(), h))
			defer suspend.Pretend(time.Hour)()
			if err := l.Unlock(t.Context(), h); !errors.Is(err, client.ErrLost) {
				t.Errorf("Unlock returns %v, not ErrLost", err)
			}
		})
	}
}
