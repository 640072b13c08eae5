//go:build unix

package flock

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// TestConformance runs several servers on one directory.
func TestConformance(t *testing.T) {
	path := t.TempDir()
	open := func(t testing.TB) *Store {
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const poll = 50 * time.Millisecond
	conformance.Run(t, conformance.Engine{
		Name: "flock", Shared: true, PollLatency: poll,
		Open: func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
			e, err := proxy.Open(t.Context(), proxy.Options{
				Name: "flock", Notices: n, Logger: slog.New(slog.DiscardHandler), Timeout: timeout, Poll: poll,
			}, open(t))
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		Harm: func(t testing.TB, mutex string) (mend func()) {
			s := open(t)
			defer s.Close()
			file := s.path(mutex)
			saved, _ := os.ReadFile(file)
			write := func(data []byte) {
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write([]byte("damaged"))
			return func() { write(saved) }
		},
	})
}
