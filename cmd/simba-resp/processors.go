package main

// processors returns on how many of n the server's own code is to run: on one of two if replies wait for the disk.
//
// On two, each request is executed as soon as it arrives, and the log is written for a few of them at a time; besides, threads
// that have nothing to do for a moment look for work on the processor that the kernel or a client beside it could use. On one,
// whoever has sent by the time of a write is in it (see docs/PERFORMANCE.md). The kernel's part of a request, most of it, goes
// on the other one where it can. Of more than two none could be measured: as many as Go takes.
func (c *config) processors(n int) int {
	if n == 2 && c.Engine == engineEmbedded && c.Durability == durabilityAlways {
		return 1
	}
	return n
}
