package redis

import "github.com/simba-resp/simba-resp/backends/proxy"

// Options are the options of Open.
type Options struct {
	proxy.Options // without Poll

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
	// PlainChannels is whether contenders are also notified on simba.PlainContenderChannel.
	PlainChannels bool
}
