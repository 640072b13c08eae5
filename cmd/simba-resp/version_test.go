package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionDistinguishesReleasesFromDevelopmentBuilds(t *testing.T) {
	build := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	const commit = "83afe5a0123456789abcdef0123456789abcdef0"
	for _, c := range []struct {
		name, release string
		info          *debug.BuildInfo
		want          string
	}{
		{"a release build", "1.2.3", build("(devel)", "vcs.revision", commit), "1.2.3"},
		{"go install of a version", "", build("v1.2.3"), "1.2.3"},
		{"a work tree", "", build("v1.2.4-0.20261126090000-83afe5a01234", "vcs.revision", commit, "vcs.modified", "false"), "devel+83afe5a01234"},
		{"a changed work tree", "", build("(devel)", "vcs.revision", commit, "vcs.modified", "true"), "devel+83afe5a01234.modified"},
		{"a source archive", "", build("(devel)"), "devel"},
		{"a test", "", build(""), "devel"},
		{"no build information", "", nil, "devel"},
	} {
		if got := buildVersion(c.release, func() (*debug.BuildInfo, bool) { return c.info, c.info != nil }); got != c.want {
			t.Errorf("%s: version %q, want %q", c.name, got, c.want)
		}
	}
}
