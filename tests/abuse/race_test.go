//go:build race

package abuse

// raceCost bounds the factor by which the race detector increases the server's memory.
const raceCost = 8
