//go:build linux

package packages

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"testing"
)

// maxBinary is how large a binary may be.
const maxBinary = 25_000_000

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
		path := filepath.Join(dir, "simba-resp")
		file, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if file.Size() > maxBinary {
			t.Errorf("the binary for %s/%s has %d bytes, more than %d", system.os, system.arch, file.Size(), maxBinary)
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		build := make(map[string]string)
		for _, s := range info.Settings {
			build[s.Key] = s.Value
		}
		for key, want := range map[string]string{"GOOS": system.os, "GOARCH": system.arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
			if build[key] != want {
				t.Errorf("%s: %s is %q, want %q", archive, key, build[key], want)
			}
		}
	}
}

func TestChecksumsCoverEveryArtifact(t *testing.T) {
	checksums := artifact(t, "checksums.txt")
	cmd := "cd " + *dist + " && sha256sum --check --strict " + checksums + " && wc -l <" + checksums
	out := run(t, "sh", "-c", cmd)
	// Four archives, and two packages for each of two processors.
	if want := "\n8"; out[max(0, len(out)-len(want)):] != want {
		t.Errorf("there are not 8 artifacts:\n%s", out)
	}
}
