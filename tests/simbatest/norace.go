//go:build !race

package simbatest

// raceFlag is a flag for go build. The race detector is off for the server's program, as it is for
// the tests.
const raceFlag = "-race=false"
