// Package leaks looks for goroutines that tests have left running.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Find waits until no goroutine is left but those of the options. It returns the names of those
// that do not end in time. goleak itself waits less than half a second.
func Find(options ...goleak.Option) (err error) {
	for end := time.Now().Add(simbatest.Patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Exit ends the process with a test's exit code, or with 1 if goroutines are left.
func Exit(code int, options ...goleak.Option) {
	if code == 0 {
		if err := Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
