package commands

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

var monitorCommands = []command{
	{
		name: "monitor", arity: 1, flags: adminControl | unqueued,
		group: "server", since: "1.0.0", run: (*client).monitor,
		summary: "Listen for all requests received by the server in real time",
	},
}

// monitors has the connections that receive every command. While there are none, a command costs
// only one atomic load.
type monitors struct {
	n       atomic.Int32
	mu      sync.RWMutex // protects clients
	clients map[*client]struct{}
}

// monitor makes the connection a monitor. HoldPushes makes the server send OK before the first line
// of the monitor.
func (c *client) monitor([][]byte) error {
	c.w.Simple("OK")
	c.conn.HoldPushes()
	c.conn.SetAwaitsPushes(true)
	c.x.monitors.add(c)
	c.endIfRevoked()
	return nil
}

func (m *monitors) add(c *client) {
	c.setMonitoring(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients == nil {
		m.clients = make(map[*client]struct{})
	}
	m.clients[c] = struct{}{}
	m.n.Store(int32(len(m.clients)))
}

// remove ends the monitoring of c. After remove returns, c receives no further command.
func (m *monitors) remove(c *client) {
	if !c.monitoring.Load() {
		return
	}
	c.setMonitoring(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clients, c)
	m.n.Store(int32(len(m.clients)))
}

func (m *monitors) feed(c *client, args [][]byte) {
	if m.n.Load() == 0 {
		return
	}
	line := monitorLine(time.Now(), monitorAddr(c.conn), args)
	m.mu.RLock()
	watchers := slices.Collect(maps.Keys(m.clients))
	m.mu.RUnlock()
	for _, w := range watchers {
		w.watch(line)
	}
}

func monitorAddr(conn *resp.Conn) string {
	if path := conn.UnixSocket(); path != "" {
		return "unix:" + path
	}
	return conn.RemoteAddr()
}

func (c *client) setMonitoring(on bool) {
	c.watching.Lock()
	defer c.watching.Unlock()
	c.monitoring.Store(on)
}

// watch sends a line to c, unless its monitoring has ended. After RESET, the client would take the
// line for a reply.
func (c *client) watch(line []byte) {
	c.watching.Lock()
	defer c.watching.Unlock()
	if c.monitoring.Load() {
		c.conn.Push(line)
	}
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
