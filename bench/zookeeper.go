package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperContender uses ZooKeeper's lock recipe, like Curator's latch: it creates a sequential
// node, and watches the node before that. It has its own session.
type zookeeperContender struct {
	conn  *zk.Conn
	path  string
	id    string
	own   string      // path of its node
	death *time.Timer // closes conn after a time, since zk requests have no deadline
	end   chan struct{}
}

func toZooKeeper(addr string) connector {
	return func(mutex, id string, _ bool) (contender, error) {
		conn, _, err := zk.Connect([]string{addr}, 30*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
		if err != nil {
			return nil, err
		}
		z := &zookeeperContender{conn: conn, path: "/direct-" + mutex, id: id, end: make(chan struct{})}
		z.death = time.AfterFunc(lifetime(), conn.Close)
		if _, err := conn.Create(z.path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			z.close()
			return nil, fmt.Errorf("create the parent node: %w", err)
		}
		return z, nil
	}
}

func (z *zookeeperContender) acquire() (err error) {
	if z.own, err = z.conn.CreateProtectedEphemeralSequential(z.path+"/latch-", []byte(z.id), zk.WorldACL(zk.PermAll)); err != nil {
		return fmt.Errorf("create a node: %w", err)
	}
	for {
		children, _, err := z.conn.Children(z.path)
		if err != nil {
			return fmt.Errorf("list the nodes: %w", err)
		}
		ahead := before(children, number(z.own))
		if ahead == "" {
			return nil
		}
		there, _, gone, err := z.conn.ExistsW(z.path + "/" + ahead)
		if err != nil {
			return fmt.Errorf("watch a node: %w", err)
		}
		if !there {
			continue
		}
		select {
		case <-gone:
		case <-z.end:
			return zk.ErrClosing
		}
	}
}

// number returns the last ten digits of a node's name, the sequence number.
func number(node string) string { return node[len(node)-10:] }

// before returns the child with the largest number below that of own, or "" if own is the first.
func before(children []string, own string) (ahead string) {
	children = slices.DeleteFunc(children, func(c string) bool { return number(c) >= own })
	if len(children) == 0 {
		return ""
	}
	return slices.MaxFunc(children, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
}

func (z *zookeeperContender) release() error { return z.conn.Delete(z.own, -1) }

func (z *zookeeperContender) close() {
	z.death.Stop()
	close(z.end)
	z.conn.Close()
}
