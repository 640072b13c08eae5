//go:build race

package script

// usualPrograms is lower with the race detector, which makes compiling five times slower.
const usualPrograms = 1000
