package main

import (
	"fmt"
	"time"
)

// lease is the TTL of every lease. It is longer than a run, so no lease ends in a measurement. A
// session of ZooKeeper of an hour allows no longer one.
const lease = 30 * time.Minute

var leaseMS = fmt.Sprint(lease.Milliseconds())

type simbaContender struct {
	w          *wire
	take, give []byte
}

func toSimba(addr string) connector {
	return func(mutex, id string, hot bool) (contender, error) {
		w, err := dial(addr, lifetime())
		if err != nil {
			return nil, err
		}
		c := &simbaContender{
			w: w, give: frame("SIMBA.RELEASE", mutex, id),
			take: frame("SIMBA.ACQUIRE", mutex, id, leaseMS),
		}
		if hot {
			c.take = frame("SIMBA.ACQUIRE", mutex, id, leaseMS, "WAIT", "0")
		}
		return c, nil
	}
}

func (c *simbaContender) acquire() error { return c.wants(c.take, "acquired") }

// wants sends a command, and returns an error unless the reply is a record with the status.
func (c *simbaContender) wants(command []byte, status string) error {
	got, err := c.w.ask(command)
	if err == nil && (len(got) < 2 || string(got[1]) != status) {
		err = fmt.Errorf("the reply is %q, want the status %s", got, status)
	}
	return err
}

func (c *simbaContender) release() error { return c.w.yes(c.give) }

// yes sends a command, and returns an error unless the reply is 1.
func (w *wire) yes(command []byte) error {
	got, err := w.ask(command)
	if err == nil && string(got[0]) != "1" {
		err = fmt.Errorf("the reply is %q, want 1", got)
	}
	return err
}

func (c *simbaContender) close() { c.w.close() }
