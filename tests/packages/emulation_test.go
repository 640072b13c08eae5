//go:build linux

package packages

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
)

func TestPackageOfTheOtherProcessorServesUnderEmulation(t *testing.T) {
	arch, emulator := "arm64", "qemu-aarch64-static"
	if runtime.GOARCH == arch {
		arch, emulator = "amd64", "qemu-x86_64-static"
	}
	deb := artifact(t, "*_linux_"+arch+".deb")
	need.Program(t, emulator, "qemu-user-static")
	dir := t.TempDir()
	run(t, "dpkg-deb", "--extract", deb, dir)
	server := filepath.Join(dir, binary)
	if got, want := run(t, emulator, server, "--version"), "linux/"+arch; !strings.HasSuffix(got, want) {
		t.Errorf("--version shows %q, want %q at the end", got, want)
	}
	serve := exec.Command(emulator, server, "--addr", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"))
	serve.SysProcAttr = new(syscall.SysProcAttr)
	s := start(t, serve)
	s.acquire()
	s.stop()
}
