package tests

import (
	"errors"
	"fmt"
	"log"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
)

// zookeeperContender is Curator's latch, with a session of its own: a node of a
// sequence, and a watch on the node before it.
type zookeeperContender struct {
	conn *zk.Conn
	path string
	id   string
}

func directZooKeeper(b *testing.B, s *shared) connector {
	return func(b *testing.B, mutex, id string, _ bool) contender {
		b.Helper()
		c, _, err := zk.Connect([]string{s.store.Addr}, patience, zk.WithLogger(log.New(discard{}, "", 0)))
		if err != nil {
			b.Fatal(err)
		}
		z := &zookeeperContender{conn: c, path: "/direct-" + mutex, id: id}
		if _, err := c.Create(z.path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			b.Fatal(err)
		}
		return z
	}
}

func (z *zookeeperContender) pair(stop <-chan struct{}) error {
	own, err := z.conn.CreateProtectedEphemeralSequential(z.path+"/latch-", []byte(z.id), zk.WorldACL(zk.PermAll))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for {
		children, _, err := z.conn.Children(z.path)
		if err != nil {
			return fmt.Errorf("children: %w", err)
		}
		ahead := before(children, own[len(own)-10:])
		if ahead == "" {
			return z.conn.Delete(own, -1)
		}
		there, _, gone, err := z.conn.ExistsW(z.path + "/" + ahead)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if !there {
			continue
		}
		select {
		case <-gone:
		case <-stop:
			return nil
		}
	}
}

// before returns the child whose number is the last before own, "" if own is the
// first.
func before(children []string, own string) (ahead string) {
	number := func(child string) string { return child[len(child)-10:] }
	children = slices.DeleteFunc(children, func(c string) bool { return number(c) >= own })
	if len(children) == 0 {
		return ""
	}
	return slices.MaxFunc(children, func(a, b string) int { return slices.Compare([]byte(number(a)), []byte(number(b))) })
}

func (z *zookeeperContender) close() { z.conn.Close() }
