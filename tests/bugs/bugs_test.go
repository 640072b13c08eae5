package bugs

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// A patch no longer applies if the code around the bug has changed.
func TestEachPatchAppliesAndCompiles(t *testing.T) {
	for _, bug := range Names(t) {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			var packages []string
			for name := range applyPatch(t, moduleRoot(t), bug) {
				dir := path.Dir(name)
				if path.Ext(name) == ".lua" {
					dir = path.Dir(dir) // of the package that embeds the script
				}
				packages = append(packages, path.Join("github.com/simba-resp/simba-resp", dir))
			}
			if len(packages) == 0 {
				t.Fatal("the patch changes no file")
			}
			slices.Sort(packages)
			if out, err := Go(t, bug, "build", slices.Compact(packages)...); err != nil {
				t.Errorf("the code with the bug does not compile: %v\n%s", err, out)
			}
		})
	}
}

// The simulation seldom tears a record, so the journal's own tests must catch this bug.
func TestSeededBugsOfTheJournalAreCaught(t *testing.T) {
	SkipUnlessWanted(t)
	t.Run("torn-record-accepted", func(t *testing.T) {
		const says = "10 records, want 9 records"
		out, err := Go(t, "torn-record-accepted", "test", "-count", "1", "./persist/journal")
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("go test ends with %v, want a failure that says %q:\n%s", err, says, out)
		}
	})
}
