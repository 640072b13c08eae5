package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// checkRedis returns an error if Redis cannot keep locks, and warns if it may lose them.
func (b *Backend) checkRedis(ctx context.Context, t target, warn warnFunc) error {
	masters, err := b.up.masters(ctx)
	if err != nil {
		return explain(err, strings.Join(t.addrs, ","))
	}
	for _, node := range masters {
		if err := b.checkMaster(ctx, t, node, warn); err != nil {
			return err
		}
	}
	return nil
}

// warnFunc takes a warning about a setting. Backend.start logs the warnings if the engine starts.
type warnFunc func(message string, args ...any)

func (b *Backend) checkMaster(ctx context.Context, t target, client *redis.Client, warn warnFunc) error {
	name := client.Options().Addr
	if t.topology == sentinel {
		name = "the primary " + t.master
	}
	// The checks use one connection, so that all reach the same node. Only checkChannels and load
	// use other connections.
	node := client.Conn()
	defer func() { _ = node.Close() }()
	if err := node.Ping(ctx).Err(); err != nil {
		return explain(err, name)
	}
	info, err := node.Info(ctx, "server", "replication", "cluster").Result()
	if err != nil && strings.Contains(err.Error(), "syntax") { // before 7.0 INFO takes one section
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
		return fmt.Errorf("redis at %s is a replica (READONLY) of %s:%s: use the primary's address, or its Sentinels by redis+sentinel://",
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

// checkSettings checks the node's settings that decide whether Redis can lose locks.
func checkSettings(ctx context.Context, t target, node *redis.Conn, name string, warn warnFunc) error {
	set := make(map[string]string)
	for _, field := range []string{"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "replica-read-only"} {
		m, err := node.ConfigGet(ctx, field).Result()
		if err != nil {
			if ctx.Err() != nil {
				return explain(err, name)
			}
			warn("cannot read redis' settings: make sure that maxmemory-policy is noeviction; appendonly and appendfsync decide what a crash may lose",
				"node", name, "err", err)
			return nil
		}
		set[field] = m[field]
	}
	if policy := set["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		switch {
		case set["maxmemory"] == "0":
			warn("redis will evict locks if maxmemory is set: set maxmemory-policy to noeviction", "node", name, "policy", policy)
		case t.allowEviction:
			warn("redis may evict locks when its memory is full; then two owners are possible", "node", name, "policy", policy)
		default:
			return fmt.Errorf("redis at %s evicts keys, including locks, when its memory is full (maxmemory-policy %s): set it to noeviction, or accept it with allow-eviction=true in the url", name, policy)
		}
	}
	if set["replica-read-only"] == "no" {
		warn("a demoted primary would go on taking writes, and two owners would be possible: set replica-read-only to yes", "node", name)
	}
	switch {
	case set["appendonly"] == "no":
		warn("redis writes no append only file: a restart loses held locks; then two owners are possible", "node", name)
	case set["appendonly"] == "yes" && set["appendfsync"] != "always":
		warn("redis does not sync each write: a crash of its machine may lose the locks of the last second; then two owners are possible",
			"node", name, "appendfsync", set["appendfsync"])
	}
	return nil
}

// neededRights are the rights that the user in the url needs.
const neededRights = "~simba:* &simba* &simba:{* &simba:{*}[:]* &simba-events:{* +@all -@dangerous +info, and better +config|get"

// checkChannels warns if the user may not subscribe to the channels of all contenders.
func checkChannels(ctx context.Context, client *redis.Client, name string, warn warnFunc) error {
	ps := client.PSubscribe(ctx, contenderGlob)
	defer func() { _ = ps.Close() }()
	_, err := ps.Receive(ctx)
	if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
		warn("the redis user may not subscribe to the channels of all contenders: a release by Simba up to 3.1 may be noticed late; give the user &"+contenderGlob,
			"node", name, "err", err)
		return nil
	}
	if err != nil {
		return explain(err, name)
	}
	return nil
}

// explain turns an error at the start into an error of one line that names the node. If the cause
// is a setting, the line says what to do.
func explain(err error, name string) error {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("redis at %s needs a password: put user and password into the url (NOAUTH)", name)
	case strings.HasPrefix(text, "WRONGPASS"), strings.Contains(text, "invalid password"), strings.Contains(text, "without any password configured"):
		return fmt.Errorf("redis at %s refuses the user or password in the url: %w", name, err)
	case strings.HasPrefix(text, "NOPERM"):
		return fmt.Errorf("redis at %s denies a right; the user needs "+neededRights+": %w", name, err)
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
