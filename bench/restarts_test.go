package main

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

func TestAJournalThatIsNotFullIsNotMeasuredAsFull(t *testing.T) {
	waits := fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
	if err := proveFull(waits, nil, leastFull); err != nil {
		t.Errorf("proveFull of a full journal returns %v, want nil", err)
	}
	for what, err := range map[string]error{
		"changes do not wait":                 proveFull(nil, nil, leastFull),
		"the server is gone":                  proveFull(errors.New("EOF"), errors.New("refused"), leastFull),
		"the server hangs":                    proveFull(waits, waits, leastFull),
		"the journal has one segment too few": proveFull(waits, nil, leastFull-1),
		"a change was refused":                proveFull(errors.New("ERR"), nil, leastFull),
	} {
		if err == nil {
			t.Errorf("proveFull returns nil, although %s", what)
		}
	}
}
