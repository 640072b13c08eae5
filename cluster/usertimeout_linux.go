package cluster

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endStalled makes the kernel end a connection whose peer acknowledges nothing for so long. By
// default, the kernel doubles the time before each retransmission, so that after an outage a
// connection may stay silent for as long again.
func endStalled(conn syscall.RawConn, after time.Duration) error {
	var err error
	if failed := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	}); failed != nil {
		return failed
	}
	return err
}
