//go:build !race

package tests

// raceFlag has the server built as these tests are.
const raceFlag = "-race=false"

// crashClones is how many crashes of a store are looked at.
const crashClones = 1000
