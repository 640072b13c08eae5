package need

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// recorder is a TB that records how the test ended.
type recorder struct{ end string }

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) { r.stop("failed: "+format, args...) }

func (r *recorder) Skipf(format string, args ...any) { r.stop("skipped: "+format, args...) }

func (r *recorder) stop(format string, args ...any) {
	r.end = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ended returns how a test was skipped or failed, or "".
func ended(test func(TB)) string {
	r, done := new(recorder), make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.end
}

func TestMissingProgramSkipsTheTestOrFailsItInCI(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped: NOT TESTED: ", "true": "failed: "} {
		t.Setenv("CI", ci)
		for name, test := range map[string]func(TB){
			"Program": func(t TB) { Program(t, "no-such-program", "its-package") },
			"File":    func(t TB) { File(t, "/no/such/file", "its-package") },
		} {
			if got := ended(test); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "its-package") {
				t.Errorf("%s with CI=%q ends the test with %q, want %q and the name of the package", name, ci, got, want)
			}
		}
		if got := ended(func(t TB) { Program(t, "sh", "dash"); File(t, "/", "base-files") }); got != "" {
			t.Errorf("with CI=%q and nothing missing, the test ends with %q", ci, got)
		}
	}
}
