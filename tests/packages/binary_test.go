//go:build linux

package packages

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// maxBinary limits the size of a binary in bytes. For example, a custom cobra template adds 10 MB:
// it calls text/template, so the linker keeps all exported methods.
const maxBinary = 25 << 20

// Part of make test. With -dist, the tests of archives check the binaries instead.
func TestBuildIsASmallStaticBinaryOfItsVersion(t *testing.T) {
	if *dist != "" {
		t.Skip("with -dist, the tests of archives check the binaries")
	}
	path := filepath.Join(t.TempDir(), "simba-resp")
	run(t, "make", "-s", "-C", "../..", "build", "SERVER="+path, "VERSION=1.2.3-test")
	wantSmallStaticBinary(t, path, runtime.GOOS, runtime.GOARCH)
	if got, want := run(t, path, "--version"), "simba-resp version 1.2.3-test "; !strings.HasPrefix(got, want) {
		t.Errorf("--version shows %q, want %q first", got, want)
	}
}

func wantSmallStaticBinary(t *testing.T, path, system, arch string) {
	t.Helper()
	file, err := os.Stat(path)
	simbatest.Must(t, err)
	if file.Size() > maxBinary {
		t.Errorf("the binary for %s/%s has %d bytes, want at most %d", system, arch, file.Size(), maxBinary)
	}
	info, err := buildinfo.ReadFile(path)
	simbatest.Must(t, err)
	build := make(map[string]string)
	for _, s := range info.Settings {
		build[s.Key] = s.Value
	}
	for key, want := range map[string]string{"GOOS": system, "GOARCH": arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
		if build[key] != want {
			t.Errorf("the binary for %s/%s: %s is %q, want %q", system, arch, key, build[key], want)
		}
	}
	if system != "linux" {
		return
	}
	program, err := elf.Open(path)
	simbatest.Must(t, err)
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("the binary for %s/%s is not static: it needs a dynamic linker", system, arch)
		}
	}
}
