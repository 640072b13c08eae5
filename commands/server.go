package commands

import (
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

func (c *client) time([][]byte) { writeTime(c.w, time.Now()) }

// timeKeyed is TIME in a transaction, where it does not move.
func timeKeyed(t *keyTx, _ [][]byte) error {
	writeTime(t.w, t.Now())
	return nil
}

func writeTime(w *resp.Writer, now time.Time) {
	w.Array(2)
	w.BulkString(decimal(now.Unix()))
	w.BulkString(decimal(int64(now.Nanosecond() / 1000)))
}

func (c *client) role([][]byte) {
	c.w.Array(3)
	c.w.BulkString("master")
	c.w.Int(0)
	c.w.Array(0)
}

func (c *client) moduleList([][]byte) { c.w.Array(0) }

func (c *client) cluster([][]byte) {
	c.fail(replyError("ERR This instance has cluster support disabled"))
}

// shutdown asks the server to stop. As in Redis there is no reply: the
// connection's end is it. What SAVE, NOW and FORCE would choose does not arise:
// leases are on disk, or in memory by choice, and there are no replicas.
func (c *client) shutdown(args [][]byte) {
	abort := false
	for _, arg := range args[1:] {
		switch {
		case equalFold(arg, "ABORT"):
			abort = true
		case equalFold(arg, "NOSAVE"), equalFold(arg, "SAVE"), equalFold(arg, "NOW"), equalFold(arg, "FORCE"):
		default:
			c.fail(errSyntax)
			return
		}
	}
	switch {
	case abort && len(args) > 2:
		c.fail(errSyntax)
	case abort:
		c.fail(replyError("ERR No shutdown in progress."))
	case c.x.shutdown == nil:
		c.fail(replyError("ERR SHUTDOWN is not served here"))
	default:
		c.conn.CloseAfterReply()
		c.x.shutdown()
	}
}
