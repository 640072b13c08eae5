//go:build race

package persist

// The race detector makes a run of Pebble several times slower, and finds the same races in a few
// runs. So with it the tests that search for crashes search less. make test runs them without it, too.
const underRace = true
