package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinesOfTestsAreNotCounted(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.go": "1\n2\n", "a_test.go": "1\n", "below/b.go": "\n\n\n", "c.txt": "1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := countLines([]string{dir, filepath.Join(dir, "below")}); err != nil || n != 8 {
		t.Errorf("countLines returns %d, %v, want 8", n, err)
	}
	if n, err := countLines([]string{dir + "/none"}); err == nil {
		t.Errorf("countLines of a missing folder returns %d, want an error", n)
	}
}
