// Package protocol runs the units of Redis' own test suite that test the protocol and the commands
// of both servers. The suite is not in this repository: tools/install downloads Redis' source,
// checks its checksum, and puts it into the user's cache folder.
package protocol
