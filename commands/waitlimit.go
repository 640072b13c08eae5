package commands

import "sync/atomic"

// errTooManyWaiting is the answer to a WAIT beyond the limit. Its beginning is known to clients.
const errTooManyWaiting replyError = "ERR max number of blocked clients reached, three quarters of maxclients: ask again later, or without WAIT"

// waitLimit bounds how many connections WAIT may block: three quarters of maxclients, and one at
// least. So waiters alone never keep an owner from connecting to renew its lease.
type waitLimit struct{ blocked atomic.Int64 }

// enter reports whether one more may be blocked. If so, leave is to be called when it is not any
// more.
func (l *waitLimit) enter(maxClients int) bool {
	if l.blocked.Add(1) <= max(1, int64(maxClients)*3/4) {
		return true
	}
	l.leave()
	return false
}

func (l *waitLimit) leave() { l.blocked.Add(-1) }
