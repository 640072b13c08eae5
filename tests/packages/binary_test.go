//go:build linux

package packages

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// maxBinary limits the size of a binary in bytes. For example, a custom cobra template adds 10 MB:
// it calls text/template, so the linker keeps all exported methods.
const maxBinary = 28 << 20

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

func TestArchivesHaveSmallStaticBinariesOfEverySystem(t *testing.T) {
	for _, system := range []struct{ os, arch string }{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
	} {
		archive := artifact(t, "*_"+system.os+"_"+system.arch+".tar.gz")
		dir := t.TempDir()
		run(t, "tar", "-xzf", archive, "-C", dir, "--strip-components=1")
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "simba-resp.service", "simba-resp.toml"} {
			if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) == 0 {
				if found, _ = filepath.Glob(filepath.Join(dir, "deploy/systemd", name)); len(found) == 0 {
					t.Errorf("%s lacks %s", archive, name)
				}
			}
		}
		wantSmallStaticBinary(t, filepath.Join(dir, "simba-resp"), system.os, system.arch)
	}
}

func TestChecksumsCoverEveryArtifact(t *testing.T) {
	checksums := artifact(t, "checksums.txt")
	cmd := "cd " + *dist + " && sha256sum --check --strict " + checksums + " && wc -l <" + checksums
	out := run(t, "sh", "-c", cmd)
	// Four archives, and for each of two processors a Debian and an RPM package.
	if want := "\n8"; out[max(0, len(out)-len(want)):] != want {
		t.Errorf("checksums.txt does not have 8 artifacts:\n%s", out)
	}
}

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
