package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// The pause after a failed accept doubles, from the first value up to the last.
const (
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = time.Second
)

// Serve accepts and serves connections until ln is closed, and then returns nil. Shutdown closes ln.
// A server may serve several listeners at a time. After a temporary error, such as a lack of file
// descriptors, Serve tries again. It returns any other error. ln must not do TLS itself; see
// ServeTLS.
func (s *Server) Serve(ln net.Listener) error { return s.acceptLoop(ln, nil) }

// acceptLoop implements Serve if config is nil, otherwise ServeTLS.
func (s *Server) acceptLoop(ln net.Listener, config *tls.Config) error {
	if !s.registerListener(ln) {
		return ln.Close()
	}
	pause := firstAcceptPause
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = firstAcceptPause
			if c := s.admit(nc, config); c != nil {
				go c.run()
			}
			runtime.Gosched() // a flood of new connections must not starve the open ones
		case errors.Is(err, net.ErrClosed):
			return nil
		case !isTemporary(err):
			return fmt.Errorf("accept: %w", err)
		default:
			s.cfg.Logger.Warn("cannot accept connections", "err", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-s.stop:
				return nil
			}
			pause = min(2*pause, lastAcceptPause)
		}
	}
}

// registerListener returns false if the server is shutting down.
func (s *Server) registerListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners = append(s.listeners, ln)
	s.watch.Do(func() { s.watching.Go(s.cutVanished) })
	return true
}

// isTemporary reports whether a later accept(2) may succeed. The errors mean that a single
// connection failed, or that descriptors or memory are lacking.
func isTemporary(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains([]syscall.Errno{
		syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	}, errno)
}
