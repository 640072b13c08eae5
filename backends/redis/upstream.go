package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/credentials"
)

// upstream runs scripts at the masters of Redis. Safe for concurrent use.
type upstream struct {
	timeout time.Duration
	tasks   *proxy.Core
	client  *redis.Client        // of a single server or behind Sentinel; nil in a cluster
	cluster *redis.ClusterClient // nil without a cluster

	connections *connections

	mu        sync.Mutex                  // guards the field below
	pipelines map[*redis.Client]*pipeline // by node; nil = background tasks for keys whose node is not known
}

// newUpstream makes the clients for a target. They connect at their first request. For each new
// connection they read the login and the TLS files again. The login of Sentinels stays.
func newUpstream(source *credentials.Source[target], timeout time.Duration, tasks *proxy.Core) *upstream {
	u := &upstream{
		timeout: timeout, tasks: tasks,
		connections: newConnections(), pipelines: make(map[*redis.Client]*pipeline),
	}
	dialTimeout := min(timeout, 2*time.Second)
	t := source.Last()
	dial := dialer(dialTimeout, func() *tls.Config { return source.Get().tls }, u.connections)
	login := func(context.Context) (user, password string, err error) {
		t := source.Get()
		return t.user, t.password, nil
	}
	// MaxRetries -1: go-redis must not retry a request, as it cannot know whether a script has run.
	o := redis.UniversalOptions{
		Addrs: t.addrs, MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		CredentialsProviderContext: login, DB: t.db, TLSConfig: t.tls,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		Dialer: dial, DialTimeout: dialTimeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		PoolSize: t.poolSize, PipelinePoolSize: -1,
	}
	switch t.topology {
	case sentinel:
		u.client = redis.NewFailoverClient(o.Failover())
	case cluster:
		c := o.Cluster()
		c.ClusterStateReloadInterval, c.DisableRoutingPolicies = time.Second, true
		u.cluster = redis.NewClusterClient(c)
	default:
		u.client = redis.NewClient(o.Simple())
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
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pipelines[c]
	if p == nil {
		p = &pipeline{
			client: c, timeout: u.timeout, tasks: u.tasks,
			clock: proxy.NewClock(), backgroundLimit: make(chan struct{}, maxBackground),
		}
		u.pipelines[c] = p
	}
	return p
}

// backgroundLimitFor returns the limit of background work at the node that has a key.
func (u *upstream) backgroundLimitFor(key string) chan struct{} {
	client, _ := u.clientFor(endedContext, key) // nil if the node is not known
	return u.pipeline(client).backgroundLimit
}

// retain removes the pipelines of nodes that are not among the masters.
func (u *upstream) retain(masters []*redis.Client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.pipelines, func(c *redis.Client, _ *pipeline) bool { return !slices.Contains(masters, c) })
}

// maxTries bounds the tries of a request. Another try follows a moved slot or a failed dial.
const maxTries = 4

// redialPause is the pause before the next try after a node was unreachable. In that time the nodes
// of a cluster can agree on which node is down.
const redialPause = 100 * time.Millisecond

// run runs a script at the master that has a key. It follows MOVED, with which a node refuses to
// run a script. It does not follow ASK: the other node refuses a script too, since some of its keys
// are missing.
func (u *upstream) run(ctx context.Context, key string, s *script, args []any) (any, error) {
	client, err := u.clientFor(ctx, key)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		sent := time.Now()
		reply, err := u.pipeline(client).do(ctx, s, args)
		u.dropIfWritesRefused(client, sent, err)
		if err == nil || u.cluster == nil {
			return reply, err
		}
		u.cluster.ReloadState(ctx) // the slot may have moved, or have a new master
		var dial *net.OpError
		if try == maxTries || !redis.HasErrorPrefix(err, "MOVED") && !(errors.As(err, &dial) && dial.Op == "dial") {
			return nil, err
		}
		// The script has not run. Nodes learn of a change one after another, so several reloads may
		// be needed, and two nodes may refer to each other for a moment.
		next := u.masterNamed(ctx, err)
		if next == nil || try > 1 {
			proxy.Sleep(ctx, redialPause, nil)
		}
		if next == nil {
			next, _ = u.clientFor(ctx, key)
		}
		if next == nil || ctx.Err() != nil {
			return nil, err
		}
		client = next
	}
}

// masterNamed returns the client of the master that a MOVED error names. It returns nil for other
// errors, and if the master is not known yet.
func (u *upstream) masterNamed(ctx context.Context, err error) *redis.Client {
	masters, _ := u.masters(ctx)
	for _, c := range masters {
		if redis.HasErrorPrefix(err, "MOVED") && strings.HasSuffix(err.Error(), " "+c.Options().Addr) {
			return c
		}
	}
	return nil
}

func init() { logging.Disable() } // go-redis logs every failed dial; the backend returns or logs these errors itself
