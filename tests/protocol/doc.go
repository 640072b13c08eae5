// Package protocol runs Redis' own test suite, in Tcl, against this server: the units about the
// protocol and about commands that both servers have. The suite is not part of this repository.
// tools/install downloads Redis' source, with a pinned checksum, into the user's cache folder.
package protocol
