package clienttest

import "time"

// Times and limits of package client. Tests rely on them.
const (
	timeout   = 3 * time.Second        // of a request
	spinEvery = 100 * time.Millisecond // the default of a registry

	// The client replaces a subscriber's connection that receives nothing between two PINGs.
	pingEvery      = 3 * time.Second
	redialPauseMax = 2 * time.Second  // the longest pause between attempts to connect
	idleAfter      = 30 * time.Second // how long the client keeps a connection without channels
	connChannels   = 8192             // the largest number of channels of a connection

	queryEvery = 15 * time.Second // the longest time between two queries of an Observer
	// An Observer that misses a notice reports the change after aheadQueries more queries.
	aheadQueries = 3
	aheadPause   = 2 * time.Second // the pause before each of these queries
	maxEvents    = 1024            // how many notices may wait for OnChange
)
