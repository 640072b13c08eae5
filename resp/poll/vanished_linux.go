package poll

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Vanished reports whether the host of a TCP client has vanished. For 11 s such a host has
// acknowledged nothing, neither three retransmissions nor three probes of its full buffer. While
// data is unacknowledged, the kernel sends no keep-alive probes, and retransmits for 15 minutes.
// TCP_USER_TIMEOUT would also end the connection of a client that lives and reads nothing.
func Vanished(nc net.Conn) (vanished bool) {
	check := func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		vanished = err == nil && max(info.Retransmits, info.Probes) >= 3 &&
			time.Duration(info.Last_ack_recv)*time.Millisecond >= 11*time.Second
	}
	switch c := nc.(type) {
	case *Conn:
		if c.ref() {
			check(uintptr(c.fd))
			c.unref()
		}
	case syscall.Conn:
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(check) // fails if the connection is closed
		}
	}
	return vanished
}
