package stores

import (
	"net"
	"runtime"
	"strconv"
	"testing"
)

func TestAPortIsGivenToOneProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no names of the kernel's own")
	}
	// As another process' tests do.
	if l, err := net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(FreePort(t))); err == nil {
		l.Close()
		t.Error("another process could take it")
	}
}
