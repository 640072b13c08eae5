package redis

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Options are the options of Open.
type Options struct {
	// URL names the server, its Sentinels or the nodes of a cluster. Required.
	//
	//	redis://[user:password@]host:port[/db]
	//	redis+sentinel://[user:password@]host:port,host:port/primary[/db]
	//	redis+cluster://[user:password@]host:port,host:port
	//
	// With TLS the schemes are rediss://, rediss+sentinel:// and rediss+cluster://. The query of
	// the URL may have these parameters:
	//
	//	tls-ca, tls-cert, tls-key        PEM files
	//	tls-server-name
	//	sentinel-user, sentinel-password
	//	pool-size                        connections per node; 0 = 10 per processor
	//	allow-eviction=true              accept a Redis that evicts keys
	//	fence-ttl                        how long simba:{m}:fence outlives the last lease of a
	//	                                 mutex, such as 720h; by default for ever
	URL string
	// Reread returns the present URL. The engine calls it before each new connection, and uses the
	// login and the TLS files of its result. nil = URL does not change; the files may.
	Reread func() (string, error)
	// Timeout bounds each request to Redis; 0 = 3 s.
	Timeout time.Duration
	// Notices publishes to subscribers of this server. Required.
	Notices simba.Notices
	// Logger logs warnings about Redis; nil = none.
	Logger *slog.Logger

	HandoffWindow time.Duration // see proxy.QueueSettings.SetHandoffWindow; 0 = no reservations
	QueueGrace    time.Duration // see proxy.QueueSettings.SetQueueGrace; 0 = no grace
	History       int           // number of events kept; 0 = history.DefaultLimit
	PlainChannels bool          // also notify contenders on simba.PlainContenderChannel
}
