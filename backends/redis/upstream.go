package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// upstream is the way to the masters. Safe for concurrent use.
type upstream struct {
	timeout time.Duration
	tasks   *tasks
	client  *redis.Client        // of a single server or behind Sentinel
	cluster *redis.ClusterClient // else

	connections *connections

	mu      sync.RWMutex // guards nodes
	nodes   map[*redis.Client]*pipeline
	unknown chan struct{} // the slots of all keys whose node is not known
}

func newUpstream(t target, timeout time.Duration, tasks *tasks) *upstream {
	u := &upstream{
		timeout: timeout, tasks: tasks,
		connections: newConnections(), nodes: make(map[*redis.Client]*pipeline),
		unknown: make(chan struct{}, maxBackground),
	}
	// Nothing is retried by the client: it cannot know whether a script has run.
	dialTimeout := min(timeout, 2*time.Second)
	dial := dialer(dialTimeout, t.tls, u.connections)
	switch t.topology {
	case sentinel:
		u.client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.addrs,
			SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			Username: t.user, Password: t.password, DB: t.db, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize, PipelinePoolSize: -1,
		})
	case cluster:
		u.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:    t.addrs,
			Username: t.user, Password: t.password, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize, ClusterStateReloadInterval: time.Second, DisableRoutingPolicies: true,
		})
	default:
		u.client = redis.NewClient(&redis.Options{
			Addr:     t.addrs[0],
			Username: t.user, Password: t.password, DB: t.db, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize,
		})
	}
	return u
}

// close closes every connection, also those in use.
func (u *upstream) close() error {
	if u.cluster != nil {
		return u.cluster.Close()
	}
	return u.client.Close()
}

// of returns the client of the master that has a key.
func (u *upstream) of(ctx context.Context, key string) (*redis.Client, error) {
	if u.cluster == nil {
		return u.client, nil
	}
	return u.cluster.MasterForKey(ctx, key)
}

// masters returns the clients of all masters, in a steady order.
func (u *upstream) masters(ctx context.Context) ([]*redis.Client, error) {
	if u.cluster == nil {
		return []*redis.Client{u.client}, nil
	}
	var mu sync.Mutex
	var list []*redis.Client
	err := u.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
		return nil
	})
	slices.SortFunc(list, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return list, err
}

func (u *upstream) pipeline(c *redis.Client) *pipeline {
	u.mu.RLock()
	p := u.nodes[c]
	u.mu.RUnlock()
	if p != nil {
		return p
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if p = u.nodes[c]; p == nil {
		p = &pipeline{
			client: c, timeout: u.timeout, tasks: u.tasks, judge: u.judge,
			slots: make(chan struct{}, maxBackground),
		}
		u.nodes[c] = p
	}
	return p
}

// slotsOf bounds the work in background at the node that has a key.
func (u *upstream) slotsOf(key string) chan struct{} {
	client, err := u.of(endedContext, key)
	if err != nil {
		return u.unknown
	}
	return u.pipeline(client).slots
}

// retain forgets the pipelines of nodes that are masters no more.
func (u *upstream) retain(masters []*redis.Client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.nodes {
		if !slices.Contains(masters, c) {
			delete(u.nodes, c)
		}
	}
}

// maxRedirects is how often a request follows a slot that moved.
const maxRedirects = 4

// redialPause is left for the nodes of a cluster to tell each other who is gone.
const redialPause = 100 * time.Millisecond

// run runs a script where its first key lives. It follows MOVED and ASK, since Redis
// says so instead of running it.
func (u *upstream) run(ctx context.Context, key string, s *script, args []any) (any, error) {
	client, err := u.of(ctx, key)
	if err != nil {
		return nil, err
	}
	var reply any
	var lost error
	for range maxRedirects {
		reply, err = u.pipeline(client).do(ctx, s, args)
		if err == nil || u.cluster == nil {
			return reply, err
		}
		moved, isMoved := redirect(err, "MOVED ")
		asked, isAsk := redirect(err, "ASK ")
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			// Nothing was sent. Nodes learn of a failover one after another, so the slot may
			// have a master that the last of them did not name.
			u.cluster.ReloadState(ctx)
			wait(ctx, redialPause)
			if ctx.Err() != nil {
				return nil, err
			}
			if client, lost = u.of(ctx, key); lost != nil {
				return nil, err
			}
		case isAsk:
			return u.ask(ctx, asked, s, args)
		case isMoved:
			u.cluster.ReloadState(ctx)
			if client = u.find(ctx, moved); client == nil {
				return nil, err
			}
		default:
			u.cluster.ReloadState(ctx) // whatever it was, the slot may be elsewhere soon
			return nil, err
		}
	}
	return nil, err
}

// ask runs a script at the node that takes a slot over at this moment.
func (u *upstream) ask(ctx context.Context, addr string, s *script, args []any) (any, error) {
	client := u.find(ctx, addr)
	if client == nil {
		return nil, errors.New("redis: the slot is moving to a node that is not known yet")
	}
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	pipe := client.Pipeline()
	pipe.ScriptLoad(ctx, s.text)
	pipe.Do(ctx, "ASKING")
	limit, _ := ctx.Deadline()
	args[deadlineArg] = u.pipeline(client).clock.limit(limit)
	cmd := pipe.Do(ctx, args...)
	sent := time.Now()
	_, failure := pipe.Exec(ctx)
	reply, err := cmd.Result()
	if reply == nil && err == nil { // no connection could be made
		err = failure
	}
	u.judge(client, sent, err)
	if _, late := clockOf(reply); late && err == nil {
		return nil, errOverdue
	}
	return reply, err
}

// find returns the client of a master by its address, nil if it is not known.
func (u *upstream) find(ctx context.Context, addr string) *redis.Client {
	list, err := u.masters(ctx)
	if err != nil {
		return nil
	}
	for _, c := range list {
		if c.Options().Addr == addr {
			return c
		}
	}
	return nil
}

// redirect parses "MOVED slot host:port" and "ASK slot host:port".
func redirect(err error, prefix string) (addr string, ok bool) {
	rest, ok := strings.CutPrefix(err.Error(), prefix)
	if !ok {
		return "", false
	}
	_, addr, ok = strings.Cut(rest, " ")
	return addr, ok
}

// silent drops what go-redis logs: each failed dial, past any level. What fails is told
// to who asked, and by the backend's own logger.
type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(discard{}) } // there is no logger of a client
