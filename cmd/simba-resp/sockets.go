package main

import (
	"os"
	"syscall"
)

// socketBuffer is how many bytes the kernel may hold of what a connection has yet to read, and
// as many of what it has yet to send. The kernel doubles it, and has a limit of its own.
const socketBuffer = 128 << 10

// boundBuffers sets it for a socket that will listen, whose connections inherit it. Left to itself
// the kernel lets the buffers of a connection grow to megabytes: clients that read nothing then take
// the memory that the machine has for all its connections. And while a buffer grows, it looks as
// if the client took what it is sent, so that it was not cut for minutes.
func boundBuffers(_, _ string, c syscall.RawConn) error {
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
