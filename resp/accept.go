package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
)

// The pause after a failed accept doubles, from the first value up to the last.
const (
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = time.Second
)

// Serve accepts and serves connections until Shutdown, which closes ln and makes Serve return nil.
// A server may serve several listeners at a time. After a temporary error, such as a lack of file
// descriptors, Serve tries again. It returns any other error. ln must not do TLS itself; see
// ServeTLS.
func (s *Server) Serve(ln net.Listener) error { return s.acceptLoop(ln, nil) }

// acceptLoop implements Serve if config is nil, otherwise ServeTLS.
func (s *Server) acceptLoop(ln net.Listener, config *tls.Config) error {
	if !s.registerListener(ln) {
		return ln.Close()
	}
	defer s.removeListener(ln)
	pause := firstAcceptPause
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = firstAcceptPause
			s.startConn(nc, config)
			runtime.Gosched() // a flood of new connections must not starve the open ones
		case s.stopping():
			return nil
		case !isTemporary(err):
			return fmt.Errorf("accept: %w", err)
		default:
			s.cfg.Logger.Warn("cannot accept connections", "err", err, "pause", pause)
			s.pause(pause)
			pause = min(2*pause, lastAcceptPause)
		}
	}
}

func (s *Server) startConn(nc net.Conn, config *tls.Config) {
	if c := s.admit(nc, config); c != nil {
		go c.run()
	}
}

// registerListener returns false if the server is shutting down.
func (s *Server) registerListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[ln] = struct{}{}
	s.watch.Do(func() { s.watching.Go(s.cutVanished) })
	return true
}

func (s *Server) removeListener(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

func (s *Server) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// pause waits for d, at most until Shutdown.
func (s *Server) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stop:
	}
}

// isTemporary reports whether a later accept(2) may succeed. The errors mean that a single
// connection failed, or that descriptors or memory are lacking.
func isTemporary(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
