package stores

import (
	"net"
	"strconv"
	"testing"
)

func TestAPortIsGivenToOneProcess(t *testing.T) {
	// As another process' tests do.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take it")
	}
}
