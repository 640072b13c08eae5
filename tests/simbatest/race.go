//go:build race

package simbatest

// raceFlag has programs built as the tests are.
const raceFlag = "-race=true"
