package clienttest

import (
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname
)

// What the documentation of package client says of its timing, and its limits.
const (
	timeout        = 3 * time.Second  // of a request, and of what is asked of a subscriber's connection
	pingEvery      = 3 * time.Second  // a subscriber's connection that delivers nothing in that time is replaced
	idleAfter      = 30 * time.Second // a subscriber's connection without channels is kept for so long
	redialPauseMax = 2 * time.Second  // the longest pause between attempts to connect it
	spinEvery      = 100 * time.Millisecond

	queryEvery   = 15 * time.Second // the longest time between two looks of an Observer
	aheadQueries = 3                // so many looks later it reports a change that no notice has led to
	aheadPause   = 2 * time.Second  // before each of them

	maxEvents    = 1024 // notices that may wait for OnChange
	connChannels = 8192 // channels of one subscriber's connection
)

// longest is the client's reading of how long the machine has been suspended. No test can suspend
// the machine, so some raise the reading.
//
//go:linkname longest github.com/simba-resp/simba-resp/client.maxSuspended
var longest atomic.Int64
