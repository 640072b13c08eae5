// Package protocol runs Redis' own test suite, in Tcl, against this server: the units about the wire, and those
// about commands that this server has too. The suite is not part of this repository: tools/install fetches
// Redis' source, of a pinned checksum, into the user's cache folder.
package protocol
