//go:build !race

package simbatest

// raceFlag is the flag of go build for programs: like the tests, without the race detector.
const raceFlag = "-race=false"
