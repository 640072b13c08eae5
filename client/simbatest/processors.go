//go:build !race

package simbatest

import "testing"

func limitProcessors(testing.TB) {}
