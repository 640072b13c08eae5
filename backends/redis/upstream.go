package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/credentials"
)

// upstream runs scripts at the masters of Redis. Safe for concurrent use.
type upstream struct {
	timeout time.Duration
	tasks   *tasks
	client  *redis.Client        // of a single server or behind Sentinel; nil in a cluster
	cluster *redis.ClusterClient // nil without a cluster

	connections *connections
	open        func(addr string) *redis.Client // makes a client of one node

	mu           sync.RWMutex // guards pipelines
	pipelines    map[*redis.Client]*pipeline
	unknownLimit chan struct{} // limits background tasks for keys whose node is not known
}

// newUpstream makes the clients for a target. They connect at their first request. For each new
// connection they read the login and the TLS files again. The login of Sentinels stays.
func newUpstream(source *credentials.Source[target], timeout time.Duration, tasks *tasks) *upstream {
	u := &upstream{
		timeout: timeout, tasks: tasks,
		connections: newConnections(), pipelines: make(map[*redis.Client]*pipeline),
		unknownLimit: make(chan struct{}, maxBackground),
	}
	dialTimeout := min(timeout, 2*time.Second)
	t := source.Last()
	dial := dialer(dialTimeout, func() *tls.Config { return source.Get().tls }, u.connections)
	login := func(context.Context) (user, password string, err error) {
		t := source.Get()
		return t.user, t.password, nil
	}
	// MaxRetries -1: go-redis must not retry a request, as it cannot know whether a script has run.
	u.open = func(addr string) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr:                       addr,
			CredentialsProviderContext: login, DB: t.db, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize,
		})
	}
	switch t.topology {
	case sentinel:
		u.client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.addrs,
			SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			CredentialsProviderContext: login, DB: t.db, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize, PipelinePoolSize: -1,
		})
	case cluster:
		u.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                      t.addrs,
			CredentialsProviderContext: login, TLSConfig: t.tls,
			Protocol: 2, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
			PoolSize: t.poolSize, ClusterStateReloadInterval: time.Second, DisableRoutingPolicies: true,
		})
	default:
		u.client = u.open(t.addrs[0])
	}
	return u
}

func (u *upstream) close() error {
	if u.cluster != nil {
		return u.cluster.Close()
	}
	return u.client.Close()
}

// clientFor returns the client of the master that has a key.
func (u *upstream) clientFor(ctx context.Context, key string) (*redis.Client, error) {
	if u.cluster == nil {
		return u.client, nil
	}
	return u.cluster.MasterForKey(ctx, key)
}

// masters returns the clients of all masters, ordered by address.
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
	p := u.pipelines[c]
	u.mu.RUnlock()
	if p != nil {
		return p
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if p = u.pipelines[c]; p == nil {
		p = &pipeline{
			client: c, timeout: u.timeout, tasks: u.tasks, onResult: u.closeIfWritesRefused,
			backgroundLimit: make(chan struct{}, maxBackground),
		}
		u.pipelines[c] = p
	}
	return p
}

// backgroundLimitFor returns the limit of background work at the node that has a key.
func (u *upstream) backgroundLimitFor(key string) chan struct{} {
	client, err := u.clientFor(endedContext, key)
	if err != nil {
		return u.unknownLimit
	}
	return u.pipeline(client).backgroundLimit
}

// retain removes the pipelines of nodes that are not among the masters.
func (u *upstream) retain(masters []*redis.Client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.pipelines {
		if !slices.Contains(masters, c) {
			delete(u.pipelines, c)
		}
	}
}

// maxTries bounds the tries of a request. Another try follows a moved slot or a failed dial.
const maxTries = 4

// redialPause is the pause before the next try after a node was unreachable. In that time the nodes
// of a cluster can agree on which node is down.
const redialPause = 100 * time.Millisecond

// run runs a script at the master that has a key. It follows MOVED and ASK, with which a node
// refuses to run a script.
func (u *upstream) run(ctx context.Context, key string, s *script, args []any) (any, error) {
	client, err := u.clientFor(ctx, key)
	if err != nil {
		return nil, err
	}
	var reply any
	var unrouted error
	for range maxTries {
		reply, err = u.pipeline(client).do(ctx, s, args)
		if err == nil || u.cluster == nil {
			return reply, err
		}
		moved, isMoved := redirect(err, "MOVED ")
		asked, isAsk := redirect(err, "ASK ")
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			// The request was not sent, so the script has not run. The slot may have a new master.
			// Nodes learn of a failover one after another, so several reloads may be needed.
			u.cluster.ReloadState(ctx)
			pause(ctx, redialPause)
			if ctx.Err() != nil {
				return nil, err
			}
			if client, unrouted = u.clientFor(ctx, key); unrouted != nil {
				return nil, err
			}
		case isAsk:
			return u.runAsking(ctx, asked, s, args)
		case isMoved:
			u.cluster.ReloadState(ctx)
			if client = u.clientAt(ctx, moved); client == nil {
				return nil, err
			}
		default:
			u.cluster.ReloadState(ctx) // the slot may have moved
			return nil, err
		}
	}
	return nil, err
}

var errUnknownNode = errors.New("redis: the slot is moving to a node that is not known yet")

// runAsking runs a script at a node that is importing the slot (ASK).
func (u *upstream) runAsking(ctx context.Context, addr string, s *script, args []any) (any, error) {
	client := u.clientAt(ctx, addr)
	if client == nil {
		return nil, errUnknownNode
	}
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	pipe := client.Pipeline()
	pipe.ScriptLoad(ctx, s.text)
	pipe.Do(ctx, "ASKING")
	deadline, _ := ctx.Deadline()
	args[deadlineArg] = u.pipeline(client).clock.atNode(deadline)
	cmd := pipe.Do(ctx, args...)
	sent := time.Now()
	_, failure := pipe.Exec(ctx)
	reply, err := cmd.Result()
	if reply == nil && err == nil { // no connection could be made
		err = failure
	}
	u.closeIfWritesRefused(client, sent, err)
	if _, late := clockOf(reply); late && err == nil {
		return nil, errOverdue
	}
	return reply, err
}

func (u *upstream) clientAt(ctx context.Context, addr string) *redis.Client {
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
	if err == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(err.Error(), prefix)
	if !ok {
		return "", false
	}
	_, addr, ok = strings.Cut(rest, " ")
	return addr, ok
}

// discard is a logger for go-redis that drops everything: go-redis logs every failed dial, but the
// backend returns or logs these errors itself.
type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(discard{}) } // go-redis has one logger for all clients
