package redis

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// DefaultTimeout is the deadline of a request to Redis unless Options say otherwise.
const DefaultTimeout = 3 * time.Second

// Options say how to reach Redis and how to behave towards it.
type Options struct {
	// URL names the server, its Sentinels or the nodes of a cluster:
	//
	//	redis://[user:password@]host:port[/db]
	//	redis+sentinel://[user:password@]host:port,host:port/primary[/db]
	//	redis+cluster://[user:password@]host:port,host:port
	//
	// and with TLS rediss://, rediss+sentinel:// and rediss+cluster://. Its query may
	// have tls-ca, tls-cert, tls-key (files of PEM), tls-server-name, sentinel-user,
	// sentinel-password, pool-size (connections a node, 0 = 10 a processor),
	// allow-eviction=true and fence-ttl (how long after a lease an idle counter of tokens
	// is kept, such as 720h; without it, for ever). Required.
	URL string
	// Timeout bounds each request to Redis; 0 = DefaultTimeout.
	Timeout time.Duration
	// Notices carries notices to subscribers of this server. Required.
	Notices simba.Notices
	// Logger takes warnings about Redis; nil = none.
	Logger *slog.Logger

	HandoffWindow time.Duration // see proxy.QueueSettings.SetHandoffWindow; 0 = free for all
	QueueGrace    time.Duration // see proxy.QueueSettings.SetQueueGrace; 0 = no grace
}
