// Package release checks the configuration files of releases and deployments.
package release

import (
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// Without the strict reading of config.Load, a misspelled key would have no effect and no error.
func TestGoReleaserKnowsEveryKeyOfItsConfiguration(t *testing.T) {
	project, err := config.Load("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if project.Version != 2 || len(project.Builds) == 0 || len(project.NFPMs) == 0 {
		t.Errorf("the configuration has version %d, %d builds and %d packages, want version 2 and at least one of each", project.Version, len(project.Builds), len(project.NFPMs))
	}
}
