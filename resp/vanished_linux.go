package resp

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// vanished reports whether the host of a TCP client has vanished. For 11 s such a host has
// acknowledged nothing, neither three retransmissions nor three probes of its full buffer. While
// data is unacknowledged, the kernel sends no keep-alive probes, and retransmits for 15 minutes.
// TCP_USER_TIMEOUT would also end the connection of a client that lives and reads nothing.
//
// If nc has a method NetConn, as a *tls.Conn has, vanished looks at the connection below.
func vanished(nc net.Conn) (vanished bool) {
	if above, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = above.NetConn()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails if the connection is closed
		if unacked, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil && unacked == 0 {
			return // as on most connections: keep-alive probes work
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		vanished = err == nil && max(info.Retransmits, info.Probes) >= 3 &&
			time.Duration(info.Last_ack_recv)*time.Millisecond >= 11*time.Second
	})
	return vanished
}
