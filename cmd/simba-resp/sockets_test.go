package main

import (
	"net"
	"syscall"
	"testing"
)

// The server detects a vanished peer within 5 + 3·2 s, and the kernel buffers little for a client.
func TestConnectionsHaveTheirSocketOptions(t *testing.T) {
	ln, err := listen("addr", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer near.Close()
	far, err := ln.Accept()
	must(t, err)
	defer far.Close()
	raw, err := far.(*net.TCPConn).SyscallConn()
	must(t, err)
	for _, option := range []struct {
		name                   string
		level, which, min, max int
	}{
		{"SO_SNDBUF", syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1, 2 * socketBuffer},
		{"SO_RCVBUF", syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1, 2 * socketBuffer},
		{"SO_KEEPALIVE", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1, 1},
		{"TCP_KEEPIDLE", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 5, 5},
		{"TCP_KEEPINTVL", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 2, 2},
		{"TCP_KEEPCNT", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3, 3},
	} {
		var got int
		control := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), option.level, option.which) })
		if control != nil || err != nil || got < option.min || got > option.max {
			t.Errorf("%s is %d, want %d to %d (errors: %v, %v)", option.name, got, option.min, option.max, control, err)
		}
	}
}
