package resp

import "time"

// cutVanished ends the connections of clients whose host has vanished, until the server stops. It
// looks for them every two seconds.
func (s *Server) cutVanished() {
	for {
		select {
		case <-time.After(2 * time.Second):
			for _, c := range s.Conns() {
				if vanished(c.wire.Conn) {
					c.Close()
				}
			}
		case <-s.stop:
			return
		}
	}
}
