package poll

// Start runs the connection's coroutine, which ends when run returns. It is called once.
func (c *Conn) Start(run func()) { c.task.start(run) }

// Shared reports whether other connections wait while this one runs. It is for the connection's
// own coroutine, as are Detach, LineUp and Yield.
func (c *Conn) Shared() bool { return c.task.here != away }

// Detach is called before anything that may wait, but for Read, or compute for long: until it reads
// on, the connection then holds up no other one. It costs about a microsecond.
func (c *Conn) Detach() {
	if c.Shared() {
		c.task.to(away)
	}
}

// LineUp is Detach for a connection that waits for what the others of the line wait for too: they
// go on one after the other, in the order of their calls.
func (c *Conn) LineUp() {
	if c.Shared() {
		c.task.to(lined)
	}
}

// Yield lets the others run. It returns in one of the next rounds, each of which lets few go on. A
// connection that is detached stays so.
func (c *Conn) Yield() {
	if c.Shared() {
		c.task.to(looped)
	} else {
		c.task.to(passing)
	}
}
