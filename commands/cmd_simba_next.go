package commands

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

var simbaNextRow = command{
	name: "simba.next", arity: 3, flags: noscript | blocking | noMulti, since: "0.1.0", run: (*client).simbaNext,
	summary: "Returns the outcomes of the requests that wait via the waiter, or waits for one",
	args:    "waiter ms",
}

// maxNext is the longest that SIMBA.NEXT waits. A client asks again and again, to notice a broken
// connection.
const maxNext = time.Minute

// maxSilence is how long a waiter that has waits may send no SIMBA.NEXT. Its client is frozen then, or
// gone, and each mutex that it was granted would be idle for a lease.
const maxSilence = 5 * time.Second

func parseWaiter(b []byte) (string, error) {
	if len(b) < minWaiterName || len(b) > maxWaiterName || !printable(b) {
		return "", replyErrorf("ERR invalid waiter: it must have %d to %d visible ASCII characters", minWaiterName, maxWaiterName)
	}
	return string(b), nil
}

// viaRequest is the option VIA waiter REQUEST n. Zero values mean that it was not given.
type viaRequest struct {
	waiter string
	n      uint64
}

func (o *options) via() (r viaRequest) {
	r.waiter = optionValue(o, parseWaiter)
	if word := o.value(); o.err == nil && !equalFold(word, "REQUEST") {
		o.err = replyError("ERR syntax error: VIA needs REQUEST")
	}
	o.name = "REQUEST"
	r.n = uint64(o.integer(1, math.MaxInt64))
	return r
}

func (c *client) simbaNext(args [][]byte) error {
	name, err := parseWaiter(args[1])
	limit, w := time.Duration(0), (*waiter)(nil)
	if err == nil {
		limit, err = parseMillis("ms", args[2], 0, maxNext)
	}
	if err == nil {
		w, err = c.bindWaiter(name)
	}
	if err != nil {
		return err
	}
	w.asks(true)
	defer w.asks(false)
	wait, deadline := c.conn.NewWait(), c.x.cfg.Info.Started.Add(c.call.started+limit)
	list, why := w.take(wait), resp.Woken
	for len(list) == 0 && why == resp.Woken {
		parked := time.Now()
		why = wait.Await(deadline)
		c.call.parked += time.Since(parked)
		list = w.take(wait)
	}
	if len(list) > 0 {
		c.conn.ReplyAfter(0) // in a cluster, this server may have lost the lead since the commit of an outcome
	} else if err := unblocked[why]; err != nil {
		return err
	}
	c.w.Array(len(list))
	for _, v := range list {
		v.write(c.w)
	}
	w.sent(list, c.conn.Flush() == nil)
	return nil
}
