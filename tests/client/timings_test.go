package clienttest

import "time"

// The times and limits of package client, which its tests rely on.
const (
	timeout   = 3 * time.Second        // of a request
	spinEvery = 100 * time.Millisecond // the default of a registry

	// A subscriber's connection is replaced if it receives nothing between two PINGs.
	pingEvery      = 3 * time.Second
	redialPauseMax = 2 * time.Second  // the longest pause between attempts to connect
	idleAfter      = 30 * time.Second // how long a connection without channels is kept
	connChannels   = 8192             // the largest number of channels of a connection

	queryEvery = 15 * time.Second // the longest time between two queries of an Observer
	// An Observer reports a change without a notice after aheadQueries more queries.
	aheadQueries = 3
	aheadPause   = 2 * time.Second // the pause before each of these queries
	maxEvents    = 1024            // how many notices may wait for OnChange
)
