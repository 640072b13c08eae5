package outages

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// outageMutex is the mutex of all waiters. Each owner releases it at once. So at any time all
// waiters but one are blocked.
const outageMutex = "waited"

// wait sends the requests of one waiter until stop is closed.
func (o *outages) wait(a *asker, id int, stop <-chan struct{}) {
	// The read times out, and the test fails, only if the server forgets this waiter.
	c, err := redis.Dial("tcp", o.server.Addr, redis.DialReadTimeout(simbatest.Patience))
	if err != nil {
		o.t.Error(err)
		return
	}
	defer c.Close()
	me := fmt.Sprint("w", id)
	for {
		select {
		case <-stop:
			return
		default:
		}
		began, acquire := time.Now(), []any{outageMutex, me, 1000, "WAIT", 0}
		reply, err := c.Do("SIMBA.ACQUIRE", acquire...)
		if err != nil {
			// The reply may take two backend timeouts: one in the handoff to this waiter, and one in its
			// own request.
			if !o.refused(a, err, began, 2*o.limits.timeout, "SIMBA.ACQUIRE", acquire) {
				return
			}
			continue
		}
		r, err := simbatest.ToRecord(reply, nil)
		if err != nil || r["status"] != "acquired" && r["status"] != "renewed" || r["owner"] != me {
			o.t.Errorf("SIMBA.ACQUIRE … WAIT 0 of %s returns %v, %v, want acquired or renewed", me, reply, err)
			return
		}
		o.mu.Lock()
		o.granted = max(o.granted, uint64(r.Number("token")))
		o.mu.Unlock()
		a.served.Add(1)
		began = time.Now()
		if _, err := c.Do("SIMBA.RELEASE", outageMutex, me); err != nil && !o.refused(a, err, began, o.limits.timeout, "SIMBA.RELEASE", []any{outageMutex, me}) {
			return
		}
	}
}

// subscribe subscribes to the channels of outageMutex.
func (o *outages) subscribe() redis.PubSubConn {
	c, err := redis.Dial("tcp", o.server.Addr)
	simbatest.Must(o.t, err)
	subscription := redis.PubSubConn{Conn: c}
	simbatest.Must(o.t, subscription.Subscribe("simba:{"+outageMutex+"}", "simba-events:{"+outageMutex+"}"))
	return subscription
}

// receive counts and records the messages of the subscription until it is closed.
func (o *outages) receive(a *asker, subscription redis.PubSubConn) {
	for {
		m, ok := subscription.Receive().(redis.Message)
		switch {
		case ok && m.Channel == "simba:{"+outageMutex+"}":
			a.served.Add(1) // the payload is acquired@@…
		case ok:
			var e struct {
				Event string
				Token uint64
			}
			if err := json.Unmarshal(m.Data, &e); err != nil {
				o.t.Errorf("the event %s is not valid JSON: %v", m.Data, err)
			}
			if e.Event == "acquired" {
				o.mu.Lock()
				o.received = max(o.received, e.Token)
				o.mu.Unlock()
			}
		case subscription.Conn.Err() != nil:
			return
		}
	}
}

func (o *outages) lastGranted() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.granted
}

// untilReceived waits until the subscriber has received the event of a tenure with a larger token
// than the given one.
func (o *outages) untilReceived(than uint64) {
	o.await(fmt.Sprint("the subscriber receives a tenure after token ", than), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.received > than
	})
}
