package clienttest

import "time"

// The times and limits of package client, which its tests rely on.
const (
	timeout   = 3 * time.Second        // of a request
	spinEvery = 100 * time.Millisecond // the default of a registry

	// A subscriber's connection is replaced if nothing comes on it between two PINGs.
	pingEvery      = 3 * time.Second
	redialPauseMax = 2 * time.Second  // the longest pause between attempts to connect it
	idleAfter      = 30 * time.Second // it is kept for so long without channels
	connChannels   = 8192             // it has no more channels

	queryEvery = 15 * time.Second // the longest time between two queries of an Observer
	// An Observer reports a change without a notice after so many more queries.
	aheadQueries = 3
	aheadPause   = 2 * time.Second // before each of them
	maxEvents    = 1024            // notices that may wait for OnChange
)
