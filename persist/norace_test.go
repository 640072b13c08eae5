//go:build !race

package persist

const underRace = false
