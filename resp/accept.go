package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/resp/poll"
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
	s.beginPoller()
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
			s.log.Warn("cannot accept connections", "err", err, "pause", pause)
			s.pause(pause)
			pause = min(2*pause, lastAcceptPause)
		}
	}
}

func (s *Server) startConn(nc net.Conn, config *tls.Config) {
	if config == nil {
		nc = s.adopt(nc)
	}
	if c := s.admit(nc, config); c != nil {
		c.start()
	}
}

func (c *Conn) start() {
	if c.sock != nil {
		c.sock.Start(c.run)
	} else {
		go c.run()
	}
}

// adopt moves nc to the poller and returns the polled connection. If it cannot, it returns nc.
func (s *Server) adopt(nc net.Conn) net.Conn {
	p := s.currentPoller()
	socket, ok := nc.(poll.Socket)
	if !ok || p == nil {
		return nc
	}
	if polled, err := p.Adopt(socket); err == nil {
		return polled
	}
	return nc
}

func (s *Server) currentPoller() *poll.Poller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poller
}

// beginPoller starts the poller at the first call, if Config.Poll asks for one.
func (s *Server) beginPoller() {
	if err := s.makePoller(); err != nil {
		s.log.Info("no poller: each connection uses a goroutine", "err", err)
	}
}

func (s *Server) makePoller() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls && s.poller == nil && !s.closing {
		if s.poller, err = poll.New(); err == nil {
			s.pushers.start(max(1, runtime.GOMAXPROCS(0)-1))
		}
	}
	return err
}

// endPoller stops the poller and the shared pushers. All connections must have ended.
func (s *Server) endPoller() {
	s.mu.Lock()
	p := s.poller
	s.poller = nil
	s.mu.Unlock()
	if p != nil {
		s.pushers.stop()
		p.Close()
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
