//go:build race

package script

// usualPrograms is less than without the race detector, with which the compiler takes five times as
// long.
const usualPrograms = 1000
