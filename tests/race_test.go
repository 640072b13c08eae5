//go:build race

package tests

// raceFlag has the server built as these tests are.
const raceFlag = "-race=true"

// crashClones is how many crashes of a store are looked at: the race detector makes each cost six
// times as much.
const crashClones = 200
