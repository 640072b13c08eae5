//go:build race

package tests

// raceFlag has the server built as these tests are.
const raceFlag = "-race=true"
