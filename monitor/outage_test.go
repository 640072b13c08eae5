package monitor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// failingBackend is a Backend whose Owner takes some time and returns an error.
type failingBackend struct {
	simba.Backend
	took time.Duration
	err  error
}

func (b *failingBackend) Owner(context.Context, string) (simba.Tenure, simba.Seq, error) {
	time.Sleep(b.took)
	return simba.Tenure{}, 0, b.err
}

func TestAnOutageOfTheStoreIsLoggedOnceAtItsStartAndOnceAtItsEnd(t *testing.T) {
	refused := &simba.UnavailableError{Engine: "redis", Err: errors.New("connection refused")}
	busy := &simba.UnavailableError{Engine: "mysql", Err: errors.New("the row is locked"), Busy: true}
	const warn = `level=WARN msg="the store does not answer" engine=redis err="connection refused"` + "\n"
	again := func(away string) string {
		return `level=INFO msg="the store answers again" engine=redis away=` + away + "\n"
	}
	type request struct {
		after, took time.Duration
		err         error
	}
	const s = time.Second
	for name, c := range map[string]struct {
		requests []request
		want     string
	}{
		"many requests": {[]request{{err: refused}, {0, 0, refused}, {s / 2, 0, refused}, {s, 0, refused},
			{8 * s, 5 * s, refused}, {s, s, refused}, {133*s + s/2, 0, nil}, {s, 0, nil}}, warn + again("2m30s")},
		"one slow request":       {[]request{{0, 5 * s, refused}, {s, 0, nil}, {0, 5 * s, refused}, {s, 0, nil}}, ""},
		"a short failover":       {[]request{{0, 0, refused}, {s / 2, 0, refused}, {s / 4, 0, nil}}, ""},
		"a hanging store":        {[]request{{0, 5 * s, refused}, {0, 5 * s, refused}, {0, s, nil}}, warn + again("11s")},
		"two outages":            {[]request{{0, 0, refused}, {s, 0, refused}, {s, 0, nil}, {0, 0, refused}, {s, 0, refused}, {s, 0, nil}}, warn + again("2s") + warn + again("2s")},
		"a refusal is an answer": {[]request{{0, 0, refused}, {s, 0, refused}, {s, 0, &simba.MisconfiguredError{Engine: "redis", Err: errors.New("NOPERM")}}}, warn + again("2s")},
		"other errors": {[]request{{0, 0, &simba.UnavailableError{Engine: "redis", Err: context.Canceled}}, {s, 0, &simba.UnavailableError{Engine: "redis", Err: context.Canceled}},
			{s, 0, simba.ErrStopped}}, ""},
		"a locked row": {[]request{{0, 0, busy}, {2 * s, 0, busy}, {2 * s, 0, busy}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				store := &failingBackend{}
				b := NewTimed(store, slog.New(slog.NewTextHandler(&log, nil)))
				for _, r := range c.requests {
					time.Sleep(r.after)
					store.took, store.err = r.took, r.err
					_, _, _ = b.Owner(t.Context(), "m")
				}
				var got strings.Builder
				for line := range strings.Lines(log.String()) {
					got.WriteString(line[strings.Index(line, "level="):])
				}
				if got.String() != c.want {
					t.Errorf("the log is\n%s\nwant\n%s", &got, c.want)
				}
			})
		})
	}
}

func TestAProbeNoticesAnOutageAndIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &failingBackend{err: &simba.UnavailableError{Engine: "redis", Err: errors.New("connection refused")}}
		b := NewTimed(store, slog.New(slog.NewTextHandler(&log, nil)))
		for range 2 {
			_, _, _ = b.Probes().Owner(t.Context(), "m")
			time.Sleep(outageAfter)
		}
		if !strings.Contains(log.String(), "the store does not answer") {
			t.Errorf("after two failed probes the log is %q, want a line on the outage", &log)
		}
		if s := b.RequestStats(); s != (RequestStats{}) {
			t.Errorf("RequestStats after two probes: %+v; want zero", s)
		}
	})
}

func TestARequestOfAnEarlierOutageBeginsNoNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := &outage{log: slog.New(slog.NewTextHandler(&log, nil))}
		refused := &simba.UnavailableError{Engine: "redis", Err: errors.New("connection refused")}
		began := time.Now()
		time.Sleep(time.Second)
		o.note(began, nil) // the store answers another request
		for range 3 {
			time.Sleep(2 * time.Second)
			o.note(began, refused)
		}
		if log.Len() != 0 {
			t.Errorf("the log has %q, want nothing", log.String())
		}
	})
}
