package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// check checks all masters. If it cannot check one of them, the error is proxy.Incomplete, and the
// faults include those that an earlier check has found at that node. A node that takes no writes is
// an error too and no fault, because a failover may follow. Its scripts fail anyway.
func (b *Backend) check(ctx context.Context, t target) (faults []proxy.Fault, err error) {
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	masters, err := b.up.masters(limited)
	if err != nil {
		return nil, explain(err, strings.Join(t.addrs, ","))
	}
	byNode := make(map[string][]proxy.Fault)
	for _, node := range masters {
		name := node.Options().Addr
		found, failure := b.checkMaster(ctx, t, node)
		if failure != nil {
			found, err = b.faultsByNode[name], proxy.Incomplete{Err: failure}
		}
		byNode[name] = found
		faults = append(faults, found...)
	}
	b.faultsByNode = byNode
	return faults, err
}

func (b *Backend) checkMaster(ctx context.Context, t target, client *redis.Client) ([]proxy.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	name := client.Options().Addr
	if t.topology == sentinel {
		name = "the primary " + t.master
	}
	// The checks use one connection, so that all reach the same node. Only checkChannels uses another
	// one.
	node := client.Conn()
	defer func() { _ = node.Close() }()
	if err := node.Ping(ctx).Err(); err != nil {
		return nil, explain(err, name)
	}
	sections, err := node.InfoMap(ctx).Result()
	if err != nil {
		return nil, explain(err, name)
	}
	fields := make(map[string]string)
	for _, section := range sections {
		maps.Copy(fields, section)
	}
	version := fields["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 6 {
		return proxy.Refused("redis_version", "redis at %s is version %s, but at least 6.0 is needed", name, version), nil
	}
	if role := fields["role"]; role != "master" && role != "" {
		return nil, fmt.Errorf("redis at %s is a replica (READONLY) of %s:%s: use the primary's address, or its Sentinels by redis+sentinel://",
			name, fields["master_host"], fields["master_port"])
	}
	if fields["cluster_enabled"] == "1" && t.topology != cluster {
		return proxy.Refused("cluster-enabled", "redis at %s is a node of a cluster (cluster-enabled yes): use redis+cluster://", name), nil
	}
	faults, err := checkSettings(ctx, t, node, name)
	if err == nil {
		faults, err = checkChannels(ctx, client, name, faults)
	}
	if err != nil {
		return nil, err
	}
	key, err := b.up.writeCheckKey(ctx, client)
	if err == nil {
		err = node.Eval(ctx, writeCheckLua, []string{key}).Err()
	}
	if err != nil {
		return nil, explain(err, name)
	}
	return faults, nil
}

// checkSettings checks the node's settings that decide whether Redis can lose locks.
func checkSettings(ctx context.Context, t target, node *redis.Conn, name string) (faults []proxy.Fault, err error) {
	warn := func(setting, format string, args ...any) {
		faults = append(faults, proxy.Fault{Setting: setting, Text: "redis at " + name + " " + fmt.Sprintf(format, args...)})
	}
	set := make(map[string]string)
	for _, field := range []string{"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "replica-read-only"} {
		m, err := node.ConfigGet(ctx, field).Result()
		if err != nil {
			if ctx.Err() != nil || !errors.As(err, new(redis.Error)) {
				return nil, explain(err, name)
			}
			warn("", "does not show its settings: make sure that maxmemory-policy is noeviction; appendonly and appendfsync decide what a crash may lose (%v)", err)
			return faults, nil
		}
		set[field] = m[field]
	}
	if policy := set["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		switch {
		case set["maxmemory"] == "0":
			warn("maxmemory-policy", "will evict locks if maxmemory is set (maxmemory-policy %s): set it to noeviction", policy)
		case t.allowEviction:
			warn("maxmemory-policy", "may evict locks when its memory is full (maxmemory-policy %s); then two owners are possible", policy)
		default:
			faults = proxy.Refused("maxmemory-policy", "redis at %s evicts keys, including locks, when its memory is full (maxmemory-policy %s): set it to noeviction, or accept it with allow-eviction=true in the url", name, policy)
		}
	}
	if set["replica-read-only"] == "no" {
		warn("replica-read-only", "would go on taking writes after its demotion, and two owners would be possible: set replica-read-only to yes")
	}
	switch {
	case set["appendonly"] == "no":
		warn("appendonly", "writes no append only file (appendonly no): a restart loses held locks; then two owners are possible")
	case set["appendonly"] == "yes" && set["appendfsync"] != "always":
		warn("appendfsync", "does not sync each write (appendfsync %s): a crash of its machine may lose the locks of the last second; then two owners are possible",
			set["appendfsync"])
	}
	return faults, nil
}

// neededRights are the rights that the user in the url needs.
const neededRights = "~simba:* &simba* &simba:{* &simba:{*}[:]* &simba-events:{* +@all -@dangerous +info, and better +config|get"

// checkChannels adds a fault if the user may not subscribe to the channels of all contenders.
func checkChannels(ctx context.Context, client *redis.Client, name string, faults []proxy.Fault) ([]proxy.Fault, error) {
	ps := client.PSubscribe(ctx, contenderGlob)
	defer func() { _ = ps.Close() }()
	_, err := ps.Receive(ctx)
	switch {
	case err == nil:
		return faults, nil
	case redis.HasErrorPrefix(err, "NOPERM"):
		return append(faults, proxy.Fault{Setting: "user", Text: fmt.Sprintf(
			"redis at %s: the user may not subscribe to the channels of all contenders: a release by Simba up to 3.1 may be noticed late; give the user &%s (%v)",
			name, contenderGlob, err)}), nil
	}
	return nil, explain(err, name)
}

// explain turns an error at the start into an error of one line that names the node. If Redis' own
// words do not say what to do, the line does.
func explain(err error, name string) error {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("redis at %s needs a password: put user and password into the url (NOAUTH)", name)
	case strings.HasPrefix(text, "NOPERM"):
		return fmt.Errorf("redis at %s denies a right; the user needs "+neededRights+": %w", name, err)
	}
	return fmt.Errorf("cannot use redis at %s: %w", name, err)
}
