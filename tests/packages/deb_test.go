//go:build linux

package packages

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	binary   = "/usr/bin/simba-resp"
	settings = "/etc/simba-resp/simba-resp.toml"
	data     = "/var/lib/simba-resp"
	wanted   = "/etc/systemd/system/multi-user.target.wants/simba-resp.service"
)

// One lease must survive restarts, upgrades and the removal, until the purge.
func TestDebianPackageInstallsRunsUpgradesAndKeepsDataUntilThePurge(t *testing.T) {
	deb := artifact(t, "*_linux_"+runtime.GOARCH+".deb")
	version := run(t, "dpkg-deb", "--field", deb, "Version")

	run(t, "dpkg", "--install", deb)
	wantVersion(t, version)
	wantOnlyServerReadsSettings(t)
	wantOwner(t, data, "simba-resp", "simba-resp", 0o750)
	if _, err := os.Lstat(wanted); err != nil {
		t.Errorf("the service is not enabled: %v", err)
	}
	s := startUnit(t)
	token := s.acquire()
	sameLease := func(s *server) {
		t.Helper()
		if got := s.acquire(); got != token {
			t.Errorf("alice's token is %d, want %d as before", got, token)
		}
	}

	// The upgrade must keep changes of the administrator.
	simbatest.Must(t, os.WriteFile(settings, append(read(t, settings), "maxclients = 1000\n"...), 0))
	simbatest.Must(t, os.Remove(wanted))
	run(t, "dpkg", "--install", withVersion(t, deb, version+"+upgrade"))
	if got := run(t, "dpkg-query", "--show", "--showformat=${Version}", "simba-resp"); got != version+"+upgrade" {
		t.Errorf("after the upgrade version %s is installed, want %s", got, version+"+upgrade")
	}
	if !strings.Contains(string(read(t, settings)), "maxclients = 1000") {
		t.Error("the upgrade changed the settings")
	}
	wantOnlyServerReadsSettings(t)
	if _, err := os.Lstat(wanted); err == nil {
		t.Error("the upgrade enabled a disabled service")
	}
	s.stop()
	s = startUnit(t)
	sameLease(s)
	s.stop()

	run(t, "dpkg", "--remove", "simba-resp")
	wantAbsent(t, binary)
	read(t, settings)
	run(t, "dpkg", "--install", deb)
	s = startUnit(t)
	sameLease(s)
	s.stop()

	// The purge keeps files that the administrator added.
	users := filepath.Join(filepath.Dir(settings), "users.acl")
	simbatest.Must(t, os.WriteFile(users, []byte("user default off\n"), 0o400))
	run(t, "dpkg", "--purge", "simba-resp")
	for _, path := range []string{binary, settings, data, "/usr/lib/systemd/system/simba-resp.service"} {
		wantAbsent(t, path)
	}
	read(t, users)
	simbatest.Must(t, os.RemoveAll(filepath.Dir(users)))
}

// A fake systemctl records its arguments, and remembers whether the service runs.
func TestDebianPackageStartsRestartsAndStopsTheService(t *testing.T) {
	deb := artifact(t, "*_linux_"+runtime.GOARCH+".deb")
	record := filepath.Join(t.TempDir(), "record")
	bin := t.TempDir()
	program := `#!/bin/sh
echo "$@" >>` + record + `
running=` + bin + `/running
case "$*" in
*is-enabled*) echo enabled ;;
*is-active*) [ -e "$running" ] ;;
*" start "* | "start "* | *" restart "* | "restart "*) touch "$running" ;;
esac
`
	simbatest.Must(t, os.WriteFile(filepath.Join(bin, "systemctl"), []byte(program), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	simbatest.Must(t, os.MkdirAll("/run/systemd/system", 0o755))
	defer os.RemoveAll("/run/systemd/system")
	// In containers, this file often forbids packages to start services.
	if err := os.Remove("/usr/sbin/policy-rc.d"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	asked := func(want string) {
		t.Helper()
		if got := string(read(t, record)); !strings.Contains(got, want+" simba-resp.service") {
			t.Errorf("the package does not call systemctl %s; its calls:\n%s", want, got)
		}
		simbatest.Must(t, os.Remove(record))
	}
	run(t, "dpkg", "--install", deb)
	asked("start")
	run(t, "dpkg", "--install", withVersion(t, deb, "99.0"))
	asked("restart")
	run(t, "dpkg", "--remove", "simba-resp")
	asked("stop")
	run(t, "dpkg", "--purge", "simba-resp")
}

func withVersion(t *testing.T, deb, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deb")
	run(t, "dpkg-deb", "--raw-extract", deb, dir)
	control := filepath.Join(dir, "DEBIAN", "control")
	var changed strings.Builder
	for line := range strings.Lines(string(read(t, control))) {
		if strings.HasPrefix(line, "Version: ") {
			line = "Version: " + version + "\n"
		}
		changed.WriteString(line)
	}
	simbatest.Must(t, os.WriteFile(control, []byte(changed.String()), 0o644))
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir, dir+".deb")
	return dir + ".deb"
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	simbatest.Must(t, err)
	return text
}

// wantVersion checks that the installed server has the version of its package.
func wantVersion(t *testing.T, pkg string) {
	t.Helper()
	// A package version has a tilde in place of the hyphen before a pre-release.
	if got, want := strings.Fields(run(t, binary, "--version"))[2], strings.ReplaceAll(pkg, "~", "-"); got != want {
		t.Errorf("--version shows %s, want %s as in the package", got, want)
	}
}

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s still exists, or Lstat returned %v", path, err)
	}
}

// wantOnlyServerReadsSettings checks that only the server can read the settings, which may have
// passwords. Members of the group simba-resp may use the unix socket, but not read them.
func wantOnlyServerReadsSettings(t *testing.T) {
	t.Helper()
	wantOwner(t, filepath.Dir(settings), "root", "simba-resp", 0o750)
	wantOwner(t, settings, "simba-resp", "simba-resp", 0o400)
	run(t, "runuser", "-u", "simba-resp", "--", binary, "check", "--config", settings)
}

func wantOwner(t *testing.T, path, owner, group string, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	simbatest.Must(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	account, err := user.Lookup(owner)
	simbatest.Must(t, err)
	members, err := user.LookupGroup(group)
	simbatest.Must(t, err)
	if int(stat.Uid) != number(t, account.Uid) || int(stat.Gid) != number(t, members.Gid) || info.Mode().Perm() != mode {
		t.Errorf("%s: owner %d, group %d, mode %o; want %s (%s), %s (%s), %o", path,
			stat.Uid, stat.Gid, info.Mode().Perm(), owner, account.Uid, group, members.Gid, mode)
	}
}

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
