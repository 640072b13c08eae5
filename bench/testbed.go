package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// testbed starts servers and stores for a measurement. It implements stores.TB.
type testbed struct {
	dir     string // on the measured disk
	program string // of simba-resp; "" = built from this source
	undo    []func()
	faults  []string
}

// failure is the value of a panic that ends a measurement.
type failure struct{ err error }

// errMissing is returned when a program is not installed.
var errMissing = errors.New("not installed")

// withTestbed runs f with a new testbed, and then stops everything that f has started.
func withTestbed(dir string, f func(*testbed)) error {
	tb := &testbed{dir: dir}
	defer tb.cleanUp()
	_, err := tb.try(func(tb *testbed) (*site, error) { f(tb); return nil, nil })
	return err
}

// try calls start, and returns a failure as an error.
func (tb *testbed) try(start func(*testbed) (*site, error)) (_ *site, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = f.err
		default:
			panic(f)
		}
		if err == nil && len(tb.faults) > 0 {
			err = errors.New(tb.faults[0])
		}
	}()
	return start(tb)
}

func (tb *testbed) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// cleanUp calls the functions of Cleanup, the last first.
func (tb *testbed) cleanUp() {
	for _, undo := range slices.Backward(tb.undo) {
		undo()
	}
	tb.undo = nil
}

// Helper and the methods below implement stores.TB.
func (tb *testbed) Helper() {}

func (tb *testbed) Error(args ...any) { tb.faults = append(tb.faults, fmt.Sprint(args...)) }

func (tb *testbed) Errorf(format string, args ...any) {
	tb.faults = append(tb.faults, fmt.Sprintf(format, args...))
}

func (tb *testbed) Fatal(args ...any)                 { panic(failure{errors.New(fmt.Sprint(args...))}) }
func (tb *testbed) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (tb *testbed) Skipf(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", errMissing, fmt.Sprintf(format, args...))})
}
func (tb *testbed) Cleanup(f func()) { tb.undo = append(tb.undo, f) }

func (tb *testbed) TempDir() string {
	dir, err := os.MkdirTemp(tb.dir, "bench-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// StoreDir returns a new folder for a store's data, on the measured disk.
func (tb *testbed) StoreDir() string { return tb.TempDir() }
