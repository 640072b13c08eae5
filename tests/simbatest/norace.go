//go:build !race

package simbatest

// raceFlag makes go build use the race detector if the tests use it.
const raceFlag = "-race=false"
