package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionDistinguishesReleasesFromDevelopmentBuilds(t *testing.T) {
	build := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}}
	}
	for _, c := range []struct {
		name, release string
		info          *debug.BuildInfo
		want          string
	}{
		{"a release build", "1.2.3", build("v1.2.4-0.20261126090000-83afe5a01234"), "1.2.3"},
		{"go install of a version", "", build("v1.2.3"), "1.2.3"},
		{"a work tree", "", build("v1.2.4-0.20261126090000-83afe5a01234+dirty"), "1.2.4-0.20261126090000-83afe5a01234+dirty"},
		{"a source archive", "", build("(devel)"), "devel"},
		{"a test", "", build(""), "devel"},
		{"no build information", "", nil, "devel"},
	} {
		if got := buildVersion(c.release, func() (*debug.BuildInfo, bool) { return c.info, c.info != nil }); got != c.want {
			t.Errorf("%s: version %q, want %q", c.name, got, c.want)
		}
	}
}
