package stores

import (
	"net"
	"strconv"
	"testing"
)

func TestFreePortIsUniqueAcrossProcesses(t *testing.T) {
	// The tests of another process would do this.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take the port")
	}
}
