package main

import (
	"net"
	"syscall"
	"testing"
)

func TestKernelBuffersOfConnectionsAreBounded(t *testing.T) {
	ln, err := listen("addr", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer near.Close()
	far, err := ln.Accept()
	must(t, err)
	defer far.Close()
	c, err := far.(*net.TCPConn).SyscallConn()
	must(t, err)
	for _, buffer := range []int{syscall.SO_SNDBUF, syscall.SO_RCVBUF} {
		var n int
		var wrong error
		must(t, c.Control(func(fd uintptr) { n, wrong = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, buffer) }))
		if wrong != nil || n > 2*socketBuffer {
			t.Errorf("getsockopt(%d): %d bytes (error %v), want at most %d", buffer, n, wrong, 2*socketBuffer)
		}
	}
}
