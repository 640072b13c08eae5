package client

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnOutageThatFollowsSoonIsLoggedIfItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := outage{log: slog.New(slog.NewTextHandler(&log, nil))}
		o.met(terms{mutex: "job"}, errUnanswered)
		o.answered()
		time.Sleep(500 * time.Millisecond)
		for range 10 {
			o.met(terms{mutex: "job"}, errUnanswered)
			time.Sleep(time.Minute)
		}
		o.answered()
		if got := log.String(); strings.Count(got, "cannot ask") != 2 || strings.Count(got, "answers again") != 2 {
			t.Errorf("the log:\n%s", got)
		}
	})
}
