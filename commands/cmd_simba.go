package commands

import (
	"strings"

	"github.com/simba-resp/simba-resp"
)

// The key of a SIMBA.* command is its first argument, the mutex. So proxies and cluster clients
// route a command by its mutex.
var (
	mutexWritten = keys{first: 1, last: 1, step: 1, use: valueRead | valueWritten}
	mutexRead    = keys{first: 1, last: 1, step: 1, use: valueRead}
)

// parseNames copies only valid names, because an invalid name may be large.
func parseNames(mutex, contender []byte) (m, c string, err error) {
	if err := simba.CheckNames(mutex, contender); err != nil {
		return "", "", err
	}
	return string(mutex), string(contender), nil
}

// parseMutex reads the name of a mutex. It copies only a valid name, because an invalid name may be
// large.
func parseMutex(b []byte) (string, error) {
	if err := simba.CheckMutex(b); err != nil {
		return "", err
	}
	return string(b), nil
}

// replyYes replies with 1 or 0, unless there is an error. The reply waits until seq is durable.
func (c *client) replyYes(yes bool, seq simba.Seq, err error) error {
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(seq)
	writeFlag(c.w, yes)
	return nil
}

// defaultCount is the default COUNT of SCAN, SIMBA.SCAN and SIMBA.HISTORY.
const defaultCount = 10

func (o *options) count() int { return int(o.integer(1, simba.MaxCount)) }

func (c *client) simbaHelp([][]byte) error {
	var lines []string
	for _, e := range c.x.table.entries {
		if e.group != simbaGroup {
			continue
		}
		if e.subs == nil {
			lines = append(lines, usage(e.command), "    "+e.summary+".")
		}
		for _, sub := range e.subs {
			lines = append(lines, strings.ToUpper(e.name)+" "+usage(sub.command), "    "+sub.summary+".")
		}
	}
	lines = append(lines, "All times are in milliseconds.")
	c.writeLines(lines)
	return nil
}
