package resp

import "time"

// cutVanished ends the connections of clients whose host has vanished, until the server stops. It
// looks for them every two seconds.
func (s *Server) cutVanished() {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
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
