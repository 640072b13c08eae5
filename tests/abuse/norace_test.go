//go:build !race

package abuse

// raceCost is how many times as much memory the server takes with the race detector, at the most.
const raceCost = 1
