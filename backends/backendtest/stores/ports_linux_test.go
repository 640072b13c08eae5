package stores

import (
	"net"
	"strconv"
	"testing"
)

func TestFreePortIsUniqueAcrossProcesses(t *testing.T) {
	// This is how reserve of another process reserves the port.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take the port")
	}
}
