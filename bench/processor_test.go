package main

import (
	"os"
	"testing"
	"time"
)

func TestProcessorTimeGrowsWhileAProcessComputes(t *testing.T) {
	before, err := processorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const enough = 10 * tick
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		now, err := processorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now-before >= enough {
			return
		}
	}
	t.Errorf("a minute of computing took less than %v of processor time", enough)
}
