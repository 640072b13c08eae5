//go:build !race

package abuse

// raceCost is the largest factor of the race detector on the server's memory.
const raceCost = 1
