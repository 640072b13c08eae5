//go:build !race

package script

const usualPrograms = 2000
