package commands

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// monitors are the connections that see every command. While there is none they
// cost a command one atomic load.
type monitors struct {
	n       atomic.Int32
	mu      sync.RWMutex // protects clients
	clients map[*client]struct{}
}

// monitor makes the connection one that sees every command, the first one after
// its own OK.
func (c *client) monitor([][]byte) {
	c.w.Simple("OK")
	c.conn.HoldPushes()
	c.x.monitors.add(c)
}

func (m *monitors) add(c *client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients == nil {
		m.clients = make(map[*client]struct{})
	}
	m.clients[c] = struct{}{}
	m.n.Store(int32(len(m.clients)))
	c.monitoring.Store(true)
}

func (m *monitors) remove(c *client) {
	if !c.monitoring.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clients, c)
	m.n.Store(int32(len(m.clients)))
	c.monitoring.Store(false)
}

// feed shows a command to the monitors. Administrative commands and those that
// may hold a password are not shown.
func (m *monitors) feed(c *client, e *entry, args [][]byte) {
	if m.n.Load() == 0 || e.has(admin|secret) {
		return
	}
	line := monitorLine(time.Now(), c.conn.RemoteAddr(), args)
	m.mu.RLock()
	defer m.mu.RUnlock()
	for watcher := range m.clients {
		watcher.conn.Push(line)
	}
}

// monitorLine is a command as Redis shows it:
//
//	+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
func monitorLine(now time.Time, addr string, args [][]byte) []byte {
	line := fmt.Appendf(nil, "+%d.%06d [0 %s]", now.Unix(), now.Nanosecond()/1000, addr)
	for _, a := range args {
		line = append(line, ' ')
		line = appendQuoted(line, a)
	}
	return append(line, "\r\n"...)
}

// appendQuoted quotes as Redis' sdscatrepr does.
func appendQuoted(line, arg []byte) []byte {
	line = append(line, '"')
	for _, ch := range arg {
		switch {
		case ch == '\\' || ch == '"':
			line = append(line, '\\', ch)
		case ch == '\n':
			line = append(line, `\n`...)
		case ch == '\r':
			line = append(line, `\r`...)
		case ch == '\t':
			line = append(line, `\t`...)
		case ch == '\a':
			line = append(line, `\a`...)
		case ch == '\b':
			line = append(line, `\b`...)
		case ch >= ' ' && ch <= '~':
			line = append(line, ch)
		default:
			line = append(line, `\x`...)
			if ch < 0x10 {
				line = append(line, '0')
			}
			line = strconv.AppendUint(line, uint64(ch), 16)
		}
	}
	return append(line, '"')
}
