package resp

import (
	"net"
	"time"
)

// CutVanished ends the connections of clients whose host has vanished, until stop is closed. Every
// two seconds it calls each, which calls check for each connection.
func CutVanished(stop <-chan struct{}, each func(check func(nc net.Conn, cut func()))) {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			each(func(nc net.Conn, cut func()) {
				if vanished(nc) {
					cut()
				}
			})
		case <-stop:
			return
		}
	}
}

func (s *Server) cutVanished() {
	CutVanished(s.stop, func(check func(net.Conn, func())) {
		for _, c := range s.Conns() {
			check(c.wire.Conn, c.Close)
		}
	})
}
