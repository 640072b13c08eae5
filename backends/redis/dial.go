package redis

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer returns a dialer for go-redis that never returns an error. If a dial fails, it returns a
// connection whose first use fails with the same error. After several dial errors, go-redis would
// start a goroutine that dials once a second and outlives its client.
//
// secure returns the TLS configuration of a new connection, nil without TLS.
func dialer(timeout time.Duration, secure func() *tls.Config, all *connections) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: secure()})(ctx, network, addr)
		if err != nil {
			pipe, _ := net.Pipe()
			return failedConn{pipe, err}, nil
		}
		return all.add(conn, addr), nil
	}
}

// failedConn is a connection that could not be made.
type failedConn struct {
	net.Conn // a pipe, which has the other methods
	err      error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }

// endedContext is a context that has ended. With it, go-redis uses an open connection or loaded
// cluster state, but opens no connection.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
