package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// check refuses a Redis that cannot keep locks, and warns of one that may lose them.
func (b *Backend) check(ctx context.Context, t target, warn warning) error {
	masters, err := b.up.masters(ctx)
	if err != nil {
		return explain(err, strings.Join(t.addrs, ","))
	}
	for _, node := range masters {
		if err := b.checkNode(ctx, t, node, warn); err != nil {
			return err
		}
	}
	return nil
}

// warning takes note of what weakens a promise.
type warning func(message string, args ...any)

func (b *Backend) checkNode(ctx context.Context, t target, client *redis.Client, warn warning) error {
	name := client.Options().Addr
	if t.topology == sentinel {
		name = "the primary " + t.master
	}
	node := client.Conn() // all is asked of one node, which takes a write at last
	defer func() { _ = node.Close() }()
	if err := node.Ping(ctx).Err(); err != nil {
		return explain(err, name)
	}
	info, err := node.Info(ctx, "server", "replication", "cluster").Result()
	if err != nil && strings.Contains(err.Error(), "syntax") { // one section before 7.0
		info, err = node.Info(ctx).Result()
	}
	if err != nil {
		return explain(err, name)
	}
	fields := parseInfo(info)
	version := fields["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 6 {
		return fmt.Errorf("redis at %s is version %s, but at least 6.0 is needed", name, version)
	}
	if role := fields["role"]; role != "master" && role != "" {
		return fmt.Errorf("redis at %s is a replica (READONLY) of %s:%s: name the primary, or its Sentinels by redis+sentinel://",
			name, fields["master_host"], fields["master_port"])
	}
	if fields["cluster_enabled"] == "1" && t.topology != cluster {
		return fmt.Errorf("redis at %s is a node of a cluster: use redis+cluster://", name)
	}
	if err := checkSettings(ctx, t, node, name, warn); err != nil {
		return err
	}
	if err := checkChannels(ctx, client, name, warn); err != nil {
		return err
	}
	key, err := b.up.writeCheckKey(ctx, client)
	if err == nil {
		err = node.Eval(ctx, writeCheckLua, []string{key}).Err()
	}
	if err == nil {
		err = (&pipeline{client: client}).load(ctx)
	}
	if err != nil {
		return explain(err, name)
	}
	return nil
}

func checkSettings(ctx context.Context, t target, node *redis.Conn, name string, warn warning) error {
	set := make(map[string]string)
	for _, field := range []string{"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "replica-read-only"} {
		m, err := node.ConfigGet(ctx, field).Result()
		if err != nil {
			if ctx.Err() != nil {
				return explain(err, name)
			}
			warn("cannot check redis' settings: make sure that maxmemory-policy is noeviction, and see appendonly and appendfsync for what a crash may lose",
				"node", name, "err", err)
			return nil
		}
		set[field] = m[field]
	}
	if policy := set["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		switch {
		case set["maxmemory"] == "0":
			warn("redis would evict locks if maxmemory were set: set maxmemory-policy to noeviction", "node", name, "policy", policy)
		case t.allowEviction:
			warn("redis may evict locks when its memory is full, and then two owners are possible", "node", name, "policy", policy)
		default:
			return fmt.Errorf("redis at %s evicts keys when its memory is full (maxmemory-policy %s), and locks with them: set it to noeviction, or accept it with allow-eviction=true in the url", name, policy)
		}
	}
	if set["replica-read-only"] == "no" {
		warn("a primary that is demoted would go on taking writes, and two owners are possible: set replica-read-only to yes", "node", name)
	}
	switch {
	case set["appendonly"] == "no":
		warn("redis writes no append only file: a restart loses locks that are held, and two owners are possible", "node", name)
	case set["appendonly"] == "yes" && set["appendfsync"] != "always":
		warn("redis does not sync each write: a crash of its machine may lose the last second of locks, and two owners are possible",
			"node", name, "appendfsync", set["appendfsync"])
	}
	return nil
}

// neededRights are those of the user whom the url names.
const neededRights = "~simba:* &simba* &simba:{* &simba:{*}[:]* &simba-events:{* +@all -@dangerous +info, and better +config|get"

// checkChannels warns of a user who may not listen to the channels of all contenders.
func checkChannels(ctx context.Context, client *redis.Client, name string, warn warning) error {
	ps := client.PSubscribe(ctx, contenderGlob)
	defer func() { _ = ps.Close() }()
	_, err := ps.Receive(ctx)
	if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
		warn("redis does not permit to listen to all contenders: a release by Simba up to 3.1 may be noticed late; give the user &"+contenderGlob,
			"node", name, "err", err)
		return nil
	}
	if err != nil {
		return explain(err, name)
	}
	return nil
}

// explain says in one line what to do about an error at the start.
func explain(err error, name string) error {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("redis at %s wants a password: put user and password into the url (NOAUTH)", name)
	case strings.HasPrefix(text, "WRONGPASS"), strings.Contains(text, "invalid password"), strings.Contains(text, "without any password configured"):
		return fmt.Errorf("redis at %s refuses user or password of the url: %w", name, err)
	case strings.HasPrefix(text, "NOPERM"):
		return fmt.Errorf("redis at %s does not permit what is needed, which is "+neededRights+": %w", name, err)
	case refusesWrites(err):
		return fmt.Errorf("redis at %s takes no writes: %w", name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("redis at %s does not answer in time: %w", name, err)
	}
	return fmt.Errorf("cannot use redis at %s: %w", name, err)
}

func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields
}
