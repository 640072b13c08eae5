package client

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutageSoonAfterAnotherIsLoggedIfItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := outage{log: slog.New(slog.NewTextHandler(&log, nil))}
		o.failed(&terms{mutex: "job"}, errNoAnswer)
		o.answered()
		time.Sleep(500 * time.Millisecond)
		for range 10 {
			o.failed(&terms{mutex: "job"}, errNoAnswer)
			time.Sleep(time.Minute)
		}
		o.answered()
		if got := log.String(); strings.Count(got, "does not answer") != 2 || strings.Count(got, "answers again") != 2 {
			t.Errorf("the log must have two outages and their ends:\n%s", got)
		}
	})
}
