//go:build race

package simbatest

// raceFlag builds programs as the tests are built.
const raceFlag = "-race=true"
