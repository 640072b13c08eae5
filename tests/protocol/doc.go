// Package protocol runs a part of Redis' own test suite, which is written in Tcl, against this
// server. The part has the units about the protocol and about commands that both servers have. The
// suite is not in this repository. tools/install downloads Redis' source, checks its checksum, and
// puts it into the user's cache folder.
package protocol
