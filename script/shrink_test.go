package script

import (
	"strings"
	"testing"
)

// The compiler allocates room for a thousand instructions in each function. compileScript releases
// it.
func TestCacheCountsTheSizeOfScripts(t *testing.T) {
	const functions = 1500
	c, err := compileScript("return {" + strings.Repeat("function() end,", functions) + "}")
	if err != nil {
		t.Fatal(err)
	}
	if c.bytes < 512*functions || c.bytes > 2000*functions {
		t.Errorf("the cache counts %d bytes for %d functions, want 512 to 2000 for each", c.bytes, functions)
	}
	for _, f := range c.proto.FunctionPrototypes {
		if cap(f.Code) > 16 || cap(f.DbgSourcePositions) > 16 {
			t.Fatalf("a function keeps room for %d instructions and %d positions, want at most 16",
				cap(f.Code), cap(f.DbgSourcePositions))
		}
	}
}
