package commands

import (
	"slices"
	"sync"
	"time"
)

var aclLogRow = command{
	name: "log", arity: -2, flags: adminControl, since: "6.0.0", run: (*client).aclLogShow,
	summary: "List latest events denied because of ACLs in place",
	args:    "[count | RESET]",
}

// aclLog keeps the latest denials and failed logins for ACL LOG. A record that repeats an entry of
// the last minute only increases the count of that entry.
type aclLog struct {
	mu      sync.Mutex // protects the rest
	entries []aclEntry // from old to new
	counts  [denialReasons]uint64
}

type aclRecord struct {
	reason  denialReason
	context string // "toplevel", "multi", "lua"
	object  string
	user    string
}

type aclEntry struct {
	aclRecord
	count  int64
	at     time.Time // of the latest record
	client string    // as CLIENT LIST describes it
}

const (
	maxACLLog    = 128
	aclLogWindow = time.Minute
)

// add records a denial or a failed login. client describes the client, as CLIENT INFO does.
func (l *aclLog) add(client string, r aclRecord) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[r.reason]++
	e := aclEntry{aclRecord: r, count: 1, at: now, client: client}
	if i := slices.IndexFunc(l.entries, func(e aclEntry) bool { return e.aclRecord == r && now.Sub(e.at) <= aclLogWindow }); i >= 0 {
		e.count += l.entries[i].count
		l.entries = slices.Delete(l.entries, i, i+1)
	}
	l.entries = append(l.entries, e)
	if over := len(l.entries) - maxACLLog; over > 0 {
		l.entries = slices.Delete(l.entries, 0, over)
	}
}

func (l *aclLog) newest(n int64) []aclEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = max(0, min(n, int64(len(l.entries))))
	last := slices.Clone(l.entries[len(l.entries)-int(n):])
	slices.Reverse(last)
	return last
}

func (l *aclLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func (l *aclLog) resetCounts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts = [denialReasons]uint64{}
}

// count returns the number of records with a reason since the last resetCounts.
func (l *aclLog) count(r denialReason) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[r]
}

const defaultACLLog = 10

func (c *client) aclLogShow(args [][]byte) error {
	count := int64(defaultACLLog)
	switch {
	case len(args) > 3:
		return tryHelp(c.running, args)
	case len(args) == 3 && equalFold(args[2], "RESET"):
		c.x.aclLog.reset()
		c.w.Simple("OK")
		return nil
	case len(args) == 3:
		n, ok := parseInt(args[2])
		if !ok {
			return errNotInteger
		}
		count = n
	}
	now := time.Now()
	entries := c.x.aclLog.newest(count)
	c.w.Array(len(entries))
	for _, e := range entries {
		c.w.Map(7)
		c.writeNumber("count", e.count)
		c.writeField("reason", denialWords[e.reason].name)
		c.writeField("context", e.context)
		c.writeField("object", e.object)
		c.writeField("username", e.user)
		c.w.BulkString("age-seconds")
		c.w.Double(float64(now.Sub(e.at).Round(time.Millisecond).Milliseconds()) / 1000)
		c.writeField("client-info", e.client)
	}
	return nil
}
