package dropin

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// sent is a request of a client that finds the leader by Sentinel.
type sent struct {
	from, to time.Time
	result   string // "ok" or an error
}

// sentinelClient sends requests all the time, one after the other.
type sentinelClient struct {
	library string
	lines   func() string // one line a request: from and to in nanoseconds since 1970, result
}

// requests returns the requests so far that began at or after from.
func (c *sentinelClient) requests(from time.Time) (all []sent) {
	for line := range strings.Lines(c.lines()) {
		if !strings.HasSuffix(line, "\n") || strings.Count(line, " ") < 2 {
			continue
		}
		var begin, end int64
		if _, err := fmt.Sscan(line, &begin, &end); err != nil {
			continue // a line of the library's own log
		}
		result := strings.TrimSpace(strings.SplitN(line, " ", 3)[2])
		if s := (sent{time.Unix(0, begin), time.Unix(0, end), result}); !s.from.Before(from) {
			all = append(all, s)
		}
	}
	return all
}

// first waits for the end of the first request that began at or after from.
func (c *sentinelClient) first(t *testing.T, from time.Time) (s sent) {
	t.Helper()
	simbatest.Await(t, "the client of "+c.library+" sends a request", func() bool {
		all := c.requests(from)
		if len(all) > 0 {
			s = all[0]
		}
		return len(all) > 0
	})
	return s
}

// goSentinelClient runs a FailoverClient of go-redis in this process.
func goSentinelClient(t *testing.T, sentinels []string, key string) func() string {
	// It tries the Sentinel that has ended as often, and as slowly, as a server. After PoolSize errors it
	// connects only once a second.
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "simba", SentinelAddrs: slices.Clone(sentinels),
		MaxRetries: 5, MaxRetryBackoff: 100 * time.Millisecond, DialerRetries: 1, PoolSize: 100,
	})
	var mu sync.Mutex
	var lines strings.Builder
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			from, result := time.Now(), "ok"
			if err := rdb.Set(ctx, key, "go-redis", 10*time.Minute).Err(); err != nil {
				result = strings.ReplaceAll(err.Error(), "\n", " ")
			}
			mu.Lock()
			fmt.Fprintln(&lines, from.UnixNano(), time.Now().UnixNano(), result)
			mu.Unlock()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		rdb.Close()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return lines.String()
	}
}

// sentinelPython returns a Python that has redis-py: see examples/programs_test.go.
func sentinelPython(t *testing.T) string {
	t.Helper()
	var last error
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if last = exec.Command(python, "-c", "import redis.sentinel, redis.backoff").Run(); last == nil {
			return python
		}
	}
	need.Missing(t, "no Python with redis-py: apt-get install python3-redis: %v", last)
	return ""
}

// leads waits until a member serves as the leader, and returns it with the time of its reply to a direct
// connection.
func leads(t *testing.T, members []*simbatest.Server) (leader *simbatest.Server, when time.Time) {
	t.Helper()
	simbatest.Await(t, "a member leads", func() bool {
		for _, s := range members {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1})
			status, err := record(t.Context(), rdb, "simba.cluster", "status")
			when = time.Now()
			rdb.Close()
			if err == nil && status.Text("name") == s.Member() {
				leader = s
				return true
			}
		}
		return false
	})
	return leader, when
}

// TestSentinelClientsFindEachLeader kills the leader twice while clients of five libraries send
// requests. The first request that a client sends after the next leader serves must succeed within 1 s.
// Earlier ones may fail.
func TestSentinelClientsFindEachLeader(t *testing.T) {
	all, sentinels := simbatest.SentinelMembers(t)
	leads(t, all)
	list := strings.Join(sentinels, ",")
	path := "" // of SentinelClients.java
	java := func(sub *testing.T, library, key string) func() string {
		if path == "" {
			path = jars(sub, "sentinel", "sentinel.xml", "SentinelClients.java")
		}
		return simbatest.Run(t, "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "SentinelClients", library, list, key).Output
	}
	var clients []*sentinelClient
	for _, c := range []struct {
		library string
		run     func(t *testing.T, key string) func() string
	}{
		{"go-redis", func(_ *testing.T, key string) func() string { return goSentinelClient(t, sentinels, key) }},
		{"redis-py", func(sub *testing.T, key string) func() string {
			return simbatest.Run(t, sentinelPython(sub), filepath.Join("python", "sentinel.py"), list, key).Output
		}},
		{"ioredis", func(sub *testing.T, key string) func() string {
			return simbatest.Run(t, "node", filepath.Join(nodePrograms(sub), "sentinel.mjs"), list, key).Output
		}},
		{"jedis", func(sub *testing.T, key string) func() string { return java(sub, "jedis", key) }},
		{"lettuce", func(sub *testing.T, key string) func() string { return java(sub, "lettuce", key) }},
	} {
		client := &sentinelClient{library: c.library}
		t.Run(c.library, func(sub *testing.T) { // the client outlives the subtest, which may be skipped
			client.lines = c.run(sub, "locks:"+c.library)
			clients = append(clients, client)
		})
	}
	tokens := make(map[string]int64)
	for _, c := range clients {
		simbatest.Await(t, "a request of "+c.library+" succeeds", func() bool {
			done := c.requests(time.Time{})
			return len(done) > 0 && done[len(done)-1].result == "ok"
		})
	}
	owner := func(c *sentinelClient) int64 {
		leader, _ := leads(t, all)
		r, err := record(t.Context(), connect(t, leader), "simba.owner", "locks:"+c.library)
		simbatest.Must(t, err)
		if r.Text("owner") != c.library {
			t.Errorf("the lock of %s is %v", c.library, r)
		}
		return r.Number("token")
	}
	for _, c := range clients {
		tokens[c.library] = owner(c)
	}
	for range 2 {
		leader, _ := leads(t, all)
		leader.Kill()
		rest := slices.DeleteFunc(slices.Clone(all), func(s *simbatest.Server) bool { return s == leader })
		_, served := leads(t, rest)
		for _, c := range clients {
			s := c.first(t, served)
			if took := s.to.Sub(s.from); s.result != "ok" || took > need.AtMost(time.Second) {
				t.Errorf("%s: the first request after the new leader serves takes %v: %s", c.library, took, s.result)
			}
			if now := owner(c); now != tokens[c.library] {
				t.Errorf("%s: the lock's token was %d, now it is %d", c.library, tokens[c.library], now)
			}
		}
		leader.Start()
		simbatest.Await(t, "the killed member has caught up", func() bool {
			leader, _ := leads(t, rest)
			info, err := connect(t, leader).Info(t.Context(), "cluster").Result()
			simbatest.Must(t, err)
			return strings.Count(info, "reached=1") == len(all)
		})
	}
}
