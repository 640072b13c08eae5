package main

import (
	"net"
	"syscall"
	"testing"
)

func TestKernelBuffersOfConnectionsAreBounded(t *testing.T) {
	ln, err := listen("addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, buffer := range []int{syscall.SO_SNDBUF, syscall.SO_RCVBUF} {
		var n int
		var wrong error
		if err := c.Control(func(fd uintptr) { n, wrong = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, buffer) }); err != nil {
			t.Fatal(err)
		}
		if wrong != nil || n > 2*socketBuffer {
			t.Errorf("getsockopt(%d): %d bytes (error %v), want at most %d", buffer, n, wrong, 2*socketBuffer)
		}
	}
}
