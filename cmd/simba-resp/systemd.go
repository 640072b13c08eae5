package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/simba-resp/simba-resp/persist"
)

// systemd reports the state of the service, as sd_notify(3) says. Without NOTIFY_SOCKET it reports
// nothing.
type systemd struct {
	log     *slog.Logger
	end     context.CancelFunc // of the goroutines
	running sync.WaitGroup
}

// underSystemd reports whether systemd, or another manager of services, wants reports.
func underSystemd() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// reportToSystemd reports that the server serves. If systemd has set a watchdog, the server also
// reports to the watchdog, until stop.
func reportToSystemd(a *app) *systemd {
	ctx, cancel := context.WithCancel(context.Background())
	s := &systemd{log: a.log.Logger, end: cancel}
	if !underSystemd() {
		return s
	}
	s.notify(daemon.SdNotifyReady)
	timeout, err := daemon.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		s.log.Warn("the watchdog of systemd gets no reports", "err", err)
	case timeout > 0:
		if a.hasDisk() && timeout <= persist.DefaultCommitTimeout {
			// If the disk hangs for the commit timeout, the process logs the reason and ends. A
			// watchdog must not kill it earlier.
			s.log.Warn("WatchdogSec is too short: it must be longer than the commit timeout",
				"watchdog", timeout, "commit-timeout", persist.DefaultCommitTimeout)
		}
		s.running.Go(func() {
			feedWatchdog(ctx, timeout, func() {
				a.server.Stats()
				a.engine.Stats()
				s.notify(daemon.SdNotifyWatchdog)
			})
		})
	}
	return s
}

// feedWatchdog calls feed four times in each timeout until ctx ends. feed takes the locks that
// requests take, so if one of them hangs, the watchdog gets no report.
func feedWatchdog(ctx context.Context, timeout time.Duration, feed func()) {
	ticker := time.NewTicker(timeout / 4)
	defer ticker.Stop()
	for ctx.Err() == nil {
		feed()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// reload runs f, which reloads the settings, and reports the begin and the end to systemd.
func (s *systemd) reload(f func()) {
	s.notify(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	f()
	s.notify(daemon.SdNotifyReady)
}

// stop reports that the service stops, and ends the reports to the watchdog, which systemd then no
// longer expects.
func (s *systemd) stop() {
	s.end()
	s.running.Wait()
	s.notify(daemon.SdNotifyStopping)
}

// notify sends assignments, one a line.
func (s *systemd) notify(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		s.log.Warn("cannot report to systemd", "err", err)
	}
}
