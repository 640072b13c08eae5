package main

import (
	"context"
	"fmt"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdContender uses the lock of etcd's Go client, with its own session.
type etcdContender struct {
	client  *etcd.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
	ctx     context.Context // when it ends, a waiting request fails
	end     context.CancelFunc
}

func toEtcd(addr string) connector {
	return func(mutex, _ string, _ bool) (contender, error) {
		client, err := newEtcd(addr)
		if err != nil {
			return nil, err
		}
		c := &etcdContender{client: client}
		c.ctx, c.end = context.WithTimeout(context.Background(), lifetime())
		c.session, err = concurrency.NewSession(client, concurrency.WithTTL(int(lease.Seconds())), concurrency.WithContext(c.ctx))
		if err != nil {
			c.end()
			client.Close()
			return nil, fmt.Errorf("open a session with etcd: %w", err)
		}
		c.mutex = concurrency.NewMutex(c.session, "/direct/"+mutex)
		return c, nil
	}
}

// newEtcd returns a client of the members at addrs.
func newEtcd(addrs ...string) (*etcd.Client, error) {
	return etcd.New(etcd.Config{Endpoints: addrs, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

func (c *etcdContender) acquire() error { return c.mutex.Lock(c.ctx) }
func (c *etcdContender) release() error { return c.mutex.Unlock(c.ctx) }

func (c *etcdContender) close() {
	c.end()
	c.session.Orphan()
	c.client.Close()
}
