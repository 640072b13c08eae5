package lifecycle

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	unit         = "../../deploy/systemd/simba-resp.service"
	unitSettings = "../../deploy/systemd/simba-resp.toml"
	// maxExposure limits the unit's exposure level by systemd-analyze security, from 0 to 10.
	maxExposure = 3.0
)

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	need.Program(t, "systemd-analyze", "systemd")
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestUnitIsHardened(t *testing.T) {
	out := analyze(t, "security", "--offline=yes", unit)
	level := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze prints no exposure level:\n%s", out)
	}
	if got, err := strconv.ParseFloat(level[1], 64); err != nil || got >= maxExposure {
		t.Errorf("the unit has the exposure level %s, want below %v:\n%s", level[1], maxExposure, out)
	}
}

// If the disk hangs, the server logs why and ends itself after the commit timeout. A shorter
// watchdog would kill the server before.
func TestWatchdogOfTheUnitIsLongerThanTheCommitTimeout(t *testing.T) {
	text, err := os.ReadFile(unit)
	simbatest.Must(t, err)
	match := regexp.MustCompile(`(?m)^WatchdogSec=(\d+s)$`).FindSubmatch(text)
	if match == nil {
		t.Fatal("the unit has no WatchdogSec in seconds")
	}
	if d, err := time.ParseDuration(string(match[1])); err != nil || d <= persist.DefaultCommitTimeout {
		t.Errorf("WatchdogSec is %s, %v, want more than the commit timeout", match[1], err)
	}
}

// ExecStart gets the path of the program that the test has built.
func TestUnitIsValid(t *testing.T) {
	text, err := os.ReadFile(unit)
	simbatest.Must(t, err)
	verify(t, filepath.Base(unit), strings.Replace(string(text), "=/usr/bin/simba-resp ", "="+simbatest.Binary(t)+" ", 1))
}

func TestUnitOfTheGuideIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/wrap-a-command.md")
	simbatest.Must(t, err)
	_, unit, _ := strings.Cut(string(text), "```ini\n")
	unit, _, _ = strings.Cut(unit, "```")
	verify(t, "scheduler.service", strings.Replace(unit, "=/usr/local/bin/simba-resp ", "="+simbatest.Binary(t)+" ", 1))
}

func verify(t *testing.T, name, unit string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	simbatest.Must(t, os.WriteFile(path, []byte(unit), 0o644))
	if out := analyze(t, "verify", path); strings.Contains(out, name) {
		t.Errorf("systemd-analyze verify prints:\n%s", out)
	}
}

func TestUnitSettingsAreValid(t *testing.T) {
	p := simbatest.Launch(t, "check", "--config", unitSettings)
	if code := p.Wait(t); code != 0 {
		t.Errorf("the server exits with code %d, want 0: %s", code, p.Output())
	}
}
