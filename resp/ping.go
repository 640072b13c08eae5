package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"time"
)

// selfAddr is the address of the connection of Ping. No client has this address.
const selfAddr = "self-check"

// Ping sends PING on a connection of its own and returns nil when the server has replied. An error
// reply counts too, because it shows that the server reads, executes and writes. MaxClients does
// not apply to this connection, so many clients cannot make Ping fail. Ping returns at the latest
// when ctx ends, unless a lock of the server hangs.
//
// SelfCheck returns true for this connection, so that the handler does not count PING as a client's
// command.
func (s *Server) Ping(ctx context.Context) error {
	near, far, err := socketPair()
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	defer near.Close()
	defer context.AfterFunc(ctx, func() { _ = near.SetDeadline(time.Unix(1, 0)) })()

	c := newConn(s, far)
	c.unix, c.remote, c.local = "", selfAddr, selfAddr
	if added, _ := s.add(c, math.MaxInt); !added {
		c.Close()
		return errors.New("ping: the server is shutting down")
	}
	go c.run()
	if _, err := io.WriteString(near, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	if _, err := bufio.NewReader(near).ReadString('\n'); err != nil {
		return fmt.Errorf("ping: no reply: %w", err)
	}
	return nil
}

func socketPair() (near, far net.Conn, err error) {
	syscall.ForkLock.RLock() // so that no child process inherits the descriptors
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, err = connOf(fds[0])
	far, err2 := connOf(fds[1])
	if err = errors.Join(err, err2); err != nil {
		for _, nc := range []net.Conn{near, far} {
			if nc != nil {
				nc.Close()
			}
		}
		return nil, nil, err
	}
	return near, far, nil
}

// connOf returns a net.Conn for a socket, and closes fd.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "socketpair")
	defer f.Close() // FileConn duplicates the descriptor
	return net.FileConn(f)
}
