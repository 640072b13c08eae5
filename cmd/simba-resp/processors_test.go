package main

import "testing"

func TestOnlyTheWaitForTheDiskIsServedByOneOfTwoProcessors(t *testing.T) {
	for _, c := range []struct {
		engine, durability string
		there, used        int
	}{
		{engineEmbedded, durabilityAlways, 2, 1},
		{engineEmbedded, durabilityAlways, 1, 1},
		{engineEmbedded, durabilityAlways, 3, 3},
		{engineEmbedded, durabilityAlways, 64, 64},
		{engineEmbedded, durabilityAsync, 2, 2},
		{engineEmbedded, durabilityMemory, 2, 2},
		{engineRedis, durabilityAlways, 2, 2},
	} {
		if got := (&config{Engine: c.engine, Durability: c.durability}).processors(c.there); got != c.used {
			t.Errorf("%s, %s: %d of %d", c.engine, c.durability, got, c.there)
		}
	}
}
