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

// buildVersion returns the version of a release, or of the module if `go install module@version`
// built the binary. For all other builds it returns devel, with the commit if the build knows it.
func buildVersion(release string, read func() (*debug.BuildInfo, bool)) string {
	if release != "" {
		return release
	}
	info, ok := read()
	if !ok {
		return "devel"
	}
	commit, modified := "", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	// A build in a work tree knows its commit. Its module version is then a pseudo-version.
	if v := strings.TrimPrefix(info.Main.Version, "v"); commit == "" && v != "" && v != "(devel)" {
		return v
	}
	switch {
	case commit == "":
		return "devel"
	case modified:
		return "devel+" + commit + ".modified"
	default:
		return "devel+" + commit
	}
}
