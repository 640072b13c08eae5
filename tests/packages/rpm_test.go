//go:build linux

package packages

import (
	"os"
	"runtime"
	"testing"
)

func TestRPMInstallsRunsUpgradesAndKeepsData(t *testing.T) {
	rpm := artifact(t, "*_linux_"+runtime.GOARCH+".rpm")
	// On Debian, rpm does not know the installed packages, so do not check dependencies.
	options := []string{"--force-debian", "--nodeps"}
	run(t, "rpm", append(options, "--install", rpm)...)
	wantOnlyServerReadsSettings(t)
	wantOwner(t, data, "simba-resp", "simba-resp", 0o750)
	run(t, "rpm", "--verify", "--nodeps", "--nouser", "--nogroup", "simba-resp")
	s := startUnit(t)
	token := s.acquire()

	run(t, "rpm", append(options, "--upgrade", "--replacepkgs", rpm)...)
	wantOnlyServerReadsSettings(t)
	s.stop()
	s = startUnit(t)
	if got := s.acquire(); got != token {
		t.Errorf("alice's token is %d, want %d as before", got, token)
	}
	s.stop()

	run(t, "rpm", append(options, "--erase", "simba-resp")...)
	wantAbsent(t, binary)
	if _, err := os.Stat(data); err != nil {
		t.Errorf("the data is gone after the removal of the package: %v", err)
	}
}
