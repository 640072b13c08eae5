package zookeeper

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
)

// This file has the heartbeats of sessions. A heartbeat confirms the session, and it writes the
// session's timeout to the session's marker. By the marker, another server knows how long the
// session certainly lives. Only then may that server renew a lease of the session: see vouch.

const (
	// heartbeatsPerTimeout is so large that vouch need not wait. For the longest lease, half of the
	// timeout, the last heartbeat must not be older than a sixth of the timeout: see certainLife.
	heartbeatsPerTimeout = 12
	// maxHeartbeatInterval bounds the time between two heartbeats, which find a dead connection.
	maxHeartbeatInterval = time.Second
	// keptHeartbeats is how many heartbeats a session remembers. The last ones are enough, because
	// the heartbeats of other live sessions are not much older.
	keptHeartbeats = 32
	// silence is how long a server may make no heartbeat until others presume that it is dead.
	silence    = 2 * maxHeartbeatInterval
	vouchPause = 20 * time.Millisecond // between two reads of a marker
)

// exchange is a write of which this server got the answer.
type exchange struct {
	zxid  int64     // the write's transaction id
	start time.Time // a time before the write
}

func heartbeatInterval(timeout time.Duration) time.Duration {
	return min(timeout/heartbeatsPerTimeout, maxHeartbeatInterval)
}

// markerData is the data of the session's marker: its timeout in milliseconds.
func (s *session) markerData() []byte {
	return strconv.AppendInt(nil, s.negotiated().Milliseconds(), 10)
}

// heartbeat makes a write that confirms the session. It returns zk.ErrNoNode if the session's
// marker is missing.
func (s *session) heartbeat(ctx context.Context) (*zk.Stat, error) {
	start := time.Now()
	stat, err := do(ctx, s, writes, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(s.marker(s.tag), s.markerData(), -1) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heartbeats) == keptHeartbeats {
		s.heartbeats = s.heartbeats[1:]
	}
	s.heartbeats = append(s.heartbeats, exchange{stat.Mzxid, start})
	return stat, nil
}

// around returns when two heartbeats of this session started: the last one before a transaction of
// any session, and the first one after it. The zero Time means that there is no such heartbeat. The
// transaction is certainly later than the first start, whatever the wall clocks show.
func (s *session) around(zxid int64) (before, after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heartbeats {
		if h.zxid > zxid {
			return before, h.start
		}
		before = h.start
	}
	return before, time.Time{}
}

// errUnconfirmed is returned when the session of a node may end before the lease.
var errUnconfirmed = errors.New("the server that granted the lease or queued the contender may be dead, " +
	"or its session timeout is too short for the lease")

// vouch returns a start for a lease of this length, such that the node certainly exists until the
// lease ends. The node of another server exists as long as that server's session. So vouch waits
// until a heartbeat in that session is new enough. It returns errUnconfirmed if the server seems to
// be dead, and errChanged if the node's present lease ends meanwhile.
func (b *Backend) vouch(ctx context.Context, n *node, lease time.Duration) (start time.Time, err error) {
	if !n.foreign || n.bare {
		return time.Now(), nil // keepAlive and LongestLease see to that
	}
	for {
		marker, err := n.s.get(ctx, n.s.marker(n.guid.tag()))
		if errors.Is(err, zk.ErrNoNode) {
			return start, errUnconfirmed
		}
		if err != nil {
			return start, err
		}
		timeout, err := strconv.ParseInt(string(marker.data), 10, 32)
		life := certainLife(millis(timeout))
		if err != nil || life < lease {
			return start, errUnconfirmed
		}
		before, after := n.s.around(marker.stat.Mzxid)
		b.mu.Lock()
		start = time.Now()
		ended := n.endedLocked(start)
		b.mu.Unlock()
		switch {
		case ended:
			return start, errChanged
		case !before.IsZero() && start.Add(lease).Before(before.Add(life)):
			return start, nil
		case !after.IsZero() && start.Sub(after) > silence, !sleep(ctx, vouchPause):
			return start, errUnconfirmed
		}
	}
}
