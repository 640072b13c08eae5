// Package leaks finds goroutines that tests have left running.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Find waits until no goroutines run but those that the options allow. If some do not end within
// simbatest.Patience, it returns an error that names them. goleak itself waits less than half a
// second.
func Find(options ...goleak.Option) (err error) {
	for end := time.Now().Add(simbatest.Patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Exit ends the process with code. If code is 0 and goroutines are left, it exits with 1.
func Exit(code int, options ...goleak.Option) {
	if code == 0 {
		if err := Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
