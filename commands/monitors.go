package commands

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

// monitors has the connections that receive every command. While there are none, a command costs
// only one atomic load.
type monitors struct {
	n    atomic.Int32
	mu   sync.RWMutex // protects list; held for reading while a line is pushed
	list map[*monitor]struct{}
}

// monitor is a connection that may receive the commands of all clients.
type monitor struct {
	conn *resp.Conn
	on   atomic.Bool // the client has sent MONITOR
}

func (m *monitors) add(w *monitor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.on.Store(true)
	if m.list == nil {
		m.list = make(map[*monitor]struct{})
	}
	m.list[w] = struct{}{}
	m.n.Store(int32(len(m.list)))
}

// remove ends the monitoring of w. After remove returns, w receives no further command. After RESET,
// the client would take it for a reply.
func (m *monitors) remove(w *monitor) {
	if !w.on.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w.on.Store(false)
	delete(m.list, w)
	m.n.Store(int32(len(m.list)))
}

func (m *monitors) begins(c *call) {
	if !c.entry.has(secret | unmonitored) {
		m.feed(c)
	}
}

func (m *monitors) feed(c *call) {
	if m.n.Load() == 0 {
		return
	}
	line := monitorLine(time.Now(), monitorAddr(c.conn), c.args)
	m.mu.RLock()
	defer m.mu.RUnlock()
	for w := range m.list {
		w.conn.Push(line)
	}
}

func monitorAddr(conn *resp.Conn) string {
	if path := conn.UnixSocket(); path != "" {
		return "unix:" + path
	}
	return conn.RemoteAddr()
}

// The limits of an argument and of a line, in bytes. They keep a large command from overflowing the
// output queue of a monitor.
const (
	monitorArgBytes  = 1 << 10
	monitorLineBytes = 64 << 10
	monitorNoteBytes = 64 // at the end of a line, for the number of omitted arguments
)

// monitorLine returns a command as Redis shows it:
//
//	+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
func monitorLine(now time.Time, addr string, args [][]byte) []byte {
	line := fmt.Appendf(nil, "+%d.%06d [0 %s]", now.Unix(), now.Nanosecond()/1000, addr)
	for i, a := range args {
		end := len(line)
		line = append(line, ' ')
		line = appendQuoted(line, cutArgument(a, monitorArgBytes))
		if len(line) > monitorLineBytes-monitorNoteBytes {
			line = fmt.Appendf(line[:end], ` "... (%d more arguments)"`, len(args)-i)
			break
		}
	}
	return append(line, "\r\n"...)
}

// appendQuoted appends arg in quotes, as Redis' sdscatrepr does.
func appendQuoted(line, arg []byte) []byte {
	line = append(line, '"')
	for _, ch := range arg {
		switch i := strings.IndexByte("\\\"\n\r\t\a\b", ch); {
		case i >= 0:
			line = append(line, '\\', `\"nrtab`[i])
		case ch >= ' ' && ch <= '~':
			line = append(line, ch)
		default:
			line = fmt.Appendf(line, `\x%02x`, ch)
		}
	}
	return append(line, '"')
}
