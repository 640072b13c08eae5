//go:build linux

package packages

import (
	"path/filepath"
	"testing"
)

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
