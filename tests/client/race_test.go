//go:build race

package clienttest

const underRace = true
