package engine_test

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// stopping adapts an Engine to the suite, which calls Close.
type stopping struct{ *engine.Engine }

func (s stopping) Close() error {
	s.Stop()
	return nil
}

func TestConformance(t *testing.T) { conforms(t, engine.Memory) }

func TestConformanceWithAJournalThatIsLate(t *testing.T) {
	by := func() time.Duration { return 5 * time.Millisecond }
	conforms(t, func() engine.Journal { return conformance.Late(engine.Memory(), by) })
}

func conforms(t *testing.T, journal func() engine.Journal) {
	conformance.Run(t, conformance.Engine{
		Name: "embedded",
		Open: func(t testing.TB, n simba.Notices, _ time.Duration) conformance.Backend {
			e, err := engine.New(engine.Config{Clock: engine.NewClock(0), Notices: n}, journal(), engine.Recovery{})
			if err != nil {
				t.Fatal(err)
			}
			return stopping{e}
		},
	})
}
