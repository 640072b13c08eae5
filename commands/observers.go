package commands

import "log/slog"

// An observer watches the commands of all clients. Its methods run on the goroutine of the
// connection.
type observer interface {
	// begins is called before a command runs.
	begins(c *call)
	// ended is called after the command has written its reply.
	ended(c *call)
}

// observers has all observers. client.run calls them for each command. If EXEC runs its commands in
// one transaction, client.executed calls them for these commands after the transaction.
type observers struct {
	monitors monitors
	stats    statistics
	slowlog  slowlog
	audit    audit
	all      [4]observer
}

// init makes the audit log write to log. settings are those whose names the audit log may show.
func (o *observers) init(log *slog.Logger, settings *settings) {
	o.all = [...]observer{&o.monitors, &o.stats, &o.slowlog, &o.audit}
	o.slowlog.threshold.Store(defaultSlowlogThreshold)
	o.slowlog.limit.Store(defaultSlowlogLimit)
	o.audit.init(log, settings)
}

func (o *observers) begins(c *call) {
	for _, w := range o.all {
		w.begins(c)
	}
}

func (o *observers) ended(c *call) {
	for _, w := range o.all {
		w.ended(c)
	}
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
