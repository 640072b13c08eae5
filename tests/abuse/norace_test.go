//go:build !race

package abuse

// raceCost is the largest factor by which the race detector increases the server's memory.
const raceCost = 1
