package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// stage starts servers and stores for a measurement. It implements stores.TB in place of a test. A
// failure ends the act with an error.
type stage struct {
	dir    string // on the disk that is measured
	undo   []func()
	faults []string
}

// fallen is how an act ends that cannot go on.
type fallen struct{ err error }

// errMissing is returned when a program is not installed.
var errMissing = errors.New("not installed")

// play runs an act on a stage of its own, and takes down what it started.
func play(dir string, act func(*stage)) error {
	s := &stage{dir: dir}
	defer s.strike()
	_, err := s.try(func(s *stage) (*site, error) { act(s); return nil, nil })
	return err
}

// try starts something; if it falls, that is an error.
func (s *stage) try(start func(*stage) (*site, error)) (_ *site, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fallen:
			err = f.err
		default:
			panic(f)
		}
		if err == nil && len(s.faults) > 0 {
			err = errors.New(s.faults[0])
		}
	}()
	return start(s)
}

// must ends the act if there is an error.
func (s *stage) must(err error) {
	if err != nil {
		panic(fallen{err})
	}
}

// strike takes down what was started, the last first.
func (s *stage) strike() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
	s.undo = nil
}

// Helper and those that follow are stores.TB.
func (s *stage) Helper() {}

func (s *stage) Error(args ...any) { s.faults = append(s.faults, fmt.Sprint(args...)) }

func (s *stage) Errorf(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *stage) Fatal(args ...any)                 { panic(fallen{errors.New(fmt.Sprint(args...))}) }
func (s *stage) Fatalf(format string, args ...any) { panic(fallen{fmt.Errorf(format, args...)}) }
func (s *stage) Skipf(format string, args ...any) {
	panic(fallen{fmt.Errorf("%w: %s", errMissing, fmt.Sprintf(format, args...))})
}
func (s *stage) Cleanup(f func()) { s.undo = append(s.undo, f) }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// StoreDir has stores keep their data on the disk that is measured, as the server does.
func (s *stage) StoreDir() string { return s.TempDir() }
