//go:build race

package client

const underRace = true
