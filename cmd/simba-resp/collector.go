package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// collectorPercent is by how much the heap may grow before it is collected. A held mutex lives long and in memory that
	// holds few pointers: marking it is cheap, while at Go's default of 100 half of the heap waits to be filled.
	collectorPercent = 75
	// collectorRoom is what it may grow by at least, in bytes. Who marks gives the processor to nobody for milliseconds: a
	// small heap that somebody fills with garbage without end would be marked many times a second.
	collectorRoom = 10 << 20
	// emptyHeap is what Go takes a heap for that has nothing in it.
	emptyHeap = 4 << 20
)

// paceCollector sets how much the heap may grow, now and after each collection.
func paceCollector() {
	percent := growth(0)
	debug.SetGCPercent(percent)
	watchCollections(percent)
}

// watchCollections has the growth set after the next collection, if it is another then, and so on.
func watchCollections(last int) {
	runtime.SetFinalizer(&collection{last: last}, func(c *collection) {
		now := growth(marked())
		if now != c.last {
			debug.SetGCPercent(now)
		}
		watchCollections(now)
	})
}

// collection is found to be unreachable by the next one.
type collection struct {
	last int
	_    *collection // so that it is an object of its own: small ones without pointers are allocated together
}

// marked is what the percents are of: the bytes that the last collection has found to be in use, stacks and globals included.
func marked() (bytes uint64) {
	parts := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(parts)
	for _, p := range parts {
		bytes += p.Value.Uint64()
	}
	return bytes
}

// growth is how much a heap may grow, in percent.
func growth(marked uint64) int {
	return max(collectorPercent, int(100*collectorRoom/max(marked, emptyHeap)))
}
