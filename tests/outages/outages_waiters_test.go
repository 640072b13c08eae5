package outages

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// outageMutex is what all waiters want: whoever gets it passes it on, so all but one are blocked at any time, and
// through every outage.
const outageMutex = "waited"

// wait is the life of a waiter.
func (o *outages) wait(a *asker, id int, stop <-chan struct{}) {
	// A waiter that is forgotten is found by this: everybody else has its turn in a moment.
	c, err := redis.Dial("tcp", o.server.Addr, redis.DialReadTimeout(simbatest.Patience))
	if err != nil {
		o.t.Error(err)
		return
	}
	defer c.Close()
	me := fmt.Sprint("w", id)
	// do reports whether there was an answer of the store; ok is false if there was one that must not be.
	do := func(command string, args ...any) (reply any, done, ok bool) {
		began, lost := time.Now(), o.pulse.soFar()
		reply, err := c.Do(command, args...)
		if err != nil {
			return nil, false, o.refused(a, err, began, lost, command, args)
		}
		return reply, true, true
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		reply, done, ok := do("SIMBA.ACQUIRE", outageMutex, me, 1000, "WAIT", 0)
		if !ok {
			return
		}
		if !done {
			continue
		}
		record, err := redis.Values(reply, nil)
		if err != nil || len(record) < 6 {
			o.t.Errorf("%s is told %v, %v", me, reply, err)
			return
		}
		status, _ := redis.String(record[1], nil)
		owner, _ := redis.String(record[3], nil)
		token, _ := redis.Uint64(record[5], nil)
		if status != "acquired" && status != "renewed" || owner != me {
			o.t.Errorf("%s waits without limit, and is told %q of %s", me, status, owner)
			return
		}
		o.mu.Lock()
		o.granted = max(o.granted, token)
		o.mu.Unlock()
		a.served.Add(1)
		if _, _, ok := do("SIMBA.RELEASE", outageMutex, me); !ok {
			return
		}
	}
}

// listen subscribes to what happens to the mutex that all wait for.
func (o *outages) listen() redis.PubSubConn {
	c, err := redis.Dial("tcp", o.server.Addr)
	if err != nil {
		o.t.Fatal(err)
	}
	ear := redis.PubSubConn{Conn: c}
	if err := ear.Subscribe("simba:{"+outageMutex+"}", "simba-events:{"+outageMutex+"}"); err != nil {
		o.t.Fatal(err)
	}
	return ear
}

// hear takes in what the listener is told, until it hangs up.
func (o *outages) hear(a *asker, ear redis.PubSubConn) {
	for {
		m, ok := ear.Receive().(redis.Message)
		switch {
		case ok && m.Channel == "simba:{"+outageMutex+"}":
			a.served.Add(1) // acquired@@…
		case ok:
			var e struct {
				Event string
				Token uint64
			}
			if err := json.Unmarshal(m.Data, &e); err != nil {
				o.t.Errorf("%s: %v", m.Data, err)
			}
			if e.Event == "acquired" {
				o.mu.Lock()
				o.heard = max(o.heard, e.Token)
				o.mu.Unlock()
			}
		case ear.Conn.Err() != nil:
			return
		}
	}
}

func (o *outages) lastGranted() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.granted
}

// untilHeard waits until the listener has been told of a tenure that is later than one.
func (o *outages) untilHeard(than uint64) {
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end) && !o.t.Failed(); time.Sleep(2 * time.Millisecond) {
		o.mu.Lock()
		heard := o.heard
		o.mu.Unlock()
		if heard > than {
			return
		}
	}
	o.t.Errorf("in vain for %v: the listener hears of a tenure behind %d", simbatest.Patience, than)
}
