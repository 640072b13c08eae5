package stores

import (
	"net"
	"strconv"
	"testing"
)

func TestFreePortIsUniqueAcrossProcesses(t *testing.T) {
	// As the tests of another process do.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take it")
	}
}
