package main

import (
	"runtime/debug"
	"strings"
)

// release is the version of a released binary, without the v. A release build sets it by
// -ldflags=-X.
var release string

// version is what --version, INFO and the log show.
var version = buildVersion(release, debug.ReadBuildInfo)

// buildVersion returns the version of a release, or of the module. In a work tree the version of the
// module names the commit. A build that knows neither is devel.
func buildVersion(release string, read func() (*debug.BuildInfo, bool)) string {
	if release != "" {
		return release
	}
	info, ok := read()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}
