package commands

import "log/slog"

// observers watch the commands of all clients. client.run calls them for each command, on the
// goroutine of the connection. If EXEC runs its commands in one transaction, client.executed calls
// them for these commands after the transaction.
type observers struct {
	monitors monitors
	stats    statistics
	slowlog  slowlog
	audit    audit
}

// init makes the audit log write to log. settings are those whose names the audit log may show.
func (o *observers) init(log *slog.Logger, settings *settings) {
	o.slowlog.threshold.Store(defaultSlowlogThreshold)
	o.slowlog.limit.Store(defaultSlowlogLimit)
	o.audit.init(log, settings)
}

// begins is called before a command runs.
func (o *observers) begins(c *call) { o.monitors.begins(c) }

// ended is called after the command has written its reply.
func (o *observers) ended(c *call) {
	c.entry.tally.add(c.took, c.err != nil)
	o.slowlog.ended(c)
	o.audit.ended(c)
}

// denied counts and logs the denial of a request by a user at addr. origin is "toplevel", "multi",
// "lua" or "http".
func (o *observers) denied(user, addr string, d *denial, origin string) {
	o.stats.denials[d.reason].Add(1)
	o.audit.denied(user, addr, d, origin)
}

// failedLogin counts and logs a wrong password.
func (o *observers) failedLogin(name []byte, addr string) {
	o.stats.denials[deniedAuth].Add(1)
	o.audit.failedLogin(name, addr)
}
