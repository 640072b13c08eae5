package client

import "sync"

// callbacks calls functions one at a time, in order, in a goroutine that is there as
// long as there is something to call.
type callbacks struct {
	mu      sync.Mutex // guards what follows
	queue   []func()
	settled chan struct{} // closed when all have returned; nil = none was ever called
	running bool
}

// add has f called after all before it.
func (c *callbacks) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, f)
	if !c.running {
		c.running, c.settled = true, make(chan struct{})
		go c.run()
	}
}

func (c *callbacks) run() {
	ended := false
	defer func() {
		if !ended { // a callback has ended the goroutine (runtime.Goexit)
			go c.run()
		}
	}()
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.running, ended = false, true
			close(c.settled)
			c.mu.Unlock()
			return
		}
		f := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		f()
	}
}

var none = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// idle returns what is closed when all that were added by now have returned.
func (c *callbacks) idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled == nil {
		return none
	}
	return c.settled
}
