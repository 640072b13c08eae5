//go:build !race

package abuse

// raceCost is the factor by which the race detector increases the server's memory, at most.
const raceCost = 1
