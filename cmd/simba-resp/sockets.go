package main

import (
	"os"
	"syscall"
)

// socketBuffer is the size of a connection's receive buffer and of its send buffer in the kernel.
// The kernel doubles it, and has a limit of its own.
const socketBuffer = 128 << 10

// limitBuffers sets socketBuffer for a listening socket, whose connections inherit it. By default
// the kernel lets the buffers of a connection grow to megabytes. Clients that read nothing could
// then use all memory for sockets. A growing buffer also hides for minutes that a client reads
// nothing.
func limitBuffers(_, _ string, c syscall.RawConn) error {
	var err error
	outer := c.Control(func(fd uintptr) {
		for _, buffer := range []int{syscall.SO_SNDBUF, syscall.SO_RCVBUF} {
			if err == nil {
				err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, buffer, socketBuffer))
			}
		}
	})
	if outer != nil {
		return outer
	}
	return err
}
