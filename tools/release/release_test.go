// Package release checks the configuration files of releases and deployments within seconds.
package release

import (
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// GoReleaser could silently ignore a misspelled key, so the test reads the file strictly.
func TestGoReleaserKnowsEveryKeyOfItsConfiguration(t *testing.T) {
	project, err := config.Load("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if project.Version != 2 || len(project.Builds) == 0 || len(project.NFPMs) == 0 {
		t.Errorf("version %d, %d builds, %d packages", project.Version, len(project.Builds), len(project.NFPMs))
	}
}
