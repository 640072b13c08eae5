package stores

import (
	"net"
	"strconv"
	"testing"
)

func TestFreePortIsUniqueAcrossProcesses(t *testing.T) {
	// Another process that calls the function reserve for this port listens on the same socket.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take the port")
	}
}
