// Package release checks, within seconds, what a release and a deployment are configured by.
package release

import (
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// A misspelled key would be ignored silently by a lenient reader.
func TestGoReleaserKnowsEveryKeyOfItsConfiguration(t *testing.T) {
	project, err := config.Load("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if project.Version != 2 || len(project.Builds) == 0 || len(project.NFPMs) == 0 {
		t.Errorf("version %d, %d builds, %d packages", project.Version, len(project.Builds), len(project.NFPMs))
	}
}
