package credentials

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestPipeIsReadOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reads := 0
	s, err := Open(Config[int]{
		Parse: func(string) (int, error) { reads++; return reads, nil },
		Once:  func(int) []string { return []string{pipe} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Get(); got != 1 || reads != 1 {
		t.Errorf("Get returns the value of read %d after %d reads, want those of the first", got, reads)
	}
}

func TestLastValueStaysWhileReadsFail(t *testing.T) {
	text, failure := "first", ""
	var failures []string
	s, err := Open(Config[string]{
		Text: text,
		Reread: func() (string, error) {
			if failure != "" {
				return "", errors.New(failure)
			}
			return text, nil
		},
		Parse:  func(text string) (string, error) { return text, nil },
		Failed: func(err error) { failures = append(failures, err.Error()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure = range []string{"a", "a", "b"} {
		if got := s.Get(); got != "first" {
			t.Errorf("Get returns %q after the error %s, want the first value", got, failure)
		}
	}
	text, failure = "second", ""
	if got := s.Get(); got != "second" {
		t.Errorf("Get returns %q, want the second value", got)
	}
	failure = "b"
	s.Get()
	if want := []string{"a", "b", "b"}; !slices.Equal(failures, want) {
		t.Errorf("Failed got %q, want %q", failures, want)
	}
}
