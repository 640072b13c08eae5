//go:build linux

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestPackageOfTheOtherProcessorServesUnderEmulation(t *testing.T) {
	arch, emulator := "arm64", "qemu-aarch64-static"
	if runtime.GOARCH == arch {
		arch, emulator = "amd64", "qemu-x86_64-static"
	}
	deb := artifact(t, "*_linux_"+arch+".deb")
	if _, err := exec.LookPath(emulator); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("THE BINARY FOR %s IS NOT TESTED: to run it, apt-get install qemu-user-static", arch)
	}
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
