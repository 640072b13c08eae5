package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// freeAddrs returns n loopback addresses with free ports.
func freeAddrs(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		all = append(all, ln.Addr().String())
	}
	return all
}

// announcing are the flags of a member for clients of Sentinel.
func announcing(list string) []string {
	return []string{"--cluster-sentinel-addr", "127.0.0.1:0", "--cluster-announce", list}
}

func dialSentinel(t *testing.T, a *app, options ...redis.DialOption) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", a.sentinelLn.Addr().String(), options...)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// ask returns the reply to a command as text.
func ask(c redis.Conn, command string) string {
	words := strings.Fields(command)
	var args []any
	for _, w := range words[1:] {
		args = append(args, w)
	}
	return flat(c.Do(words[0], args...))
}

// flat returns a reply with its arrays as text.
func flat(reply any, err error) string {
	switch x := reply.(type) {
	case []any:
		var parts []string
		for _, e := range x {
			parts = append(parts, flat(e, nil))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case []byte:
		return string(x)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(reply)
}

func TestSentinelNamesTheLeader(t *testing.T) {
	const list = "a=h1:1,b=h2:2,c=h3:3"
	all := leaderOf(t, members(t, announcing(list)...))
	addr := func(a *app) []string {
		return map[string][]string{"a": {"h1", "1"}, "b": {"h2", "2"}, "c": {"h3", "3"}}[a.cfg.ClusterName]
	}
	lead := addr(all[0])
	var subs []redis.PubSubConn
	for _, a := range all {
		c := dialSentinel(t, a)
		eventually(t, "the Sentinel names the leader", func() bool {
			return flat(c.Do("SENTINEL", "get-master-addr-by-name", "simba")) == "["+strings.Join(lead, " ")+"]"
		})
		port := fmt.Sprint(portOf(a.sentinelLn))
		var replicas []string
		for _, x := range slices.SortedFunc(slices.Values(all), func(x, y *app) int { return strings.Compare(x.cfg.ClusterName, y.cfg.ClusterName) }) {
			at := addr(x)
			if x != all[0] {
				replicas = append(replicas, fmt.Sprintf("[name %[1]s:%[2]s ip %[1]s port %[2]s flags slave]", at[0], at[1]))
			}
		}
		master := fmt.Sprintf("[name simba ip %s port %s flags master num-slaves 2 num-other-sentinels 0]", lead[0], lead[1])
		const unknown = "ERR No such master with that name"
		for _, x := range []struct{ command, want string }{
			{"PING", "PONG"},
			{"ROLE", "[sentinel [simba]]"},
			{"SENTINEL MASTERS", "[" + master + "]"},
			{"SENTINEL MASTER simba", master},
			{"SENTINEL REPLICAS simba", "[" + strings.Join(replicas, " ") + "]"},
			{"SENTINEL SLAVES simba", "[" + strings.Join(replicas, " ") + "]"},
			{"SENTINEL SENTINELS simba", "[]"},
			{"SENTINEL GET-MASTER-ADDR-BY-NAME other", "<nil>"},
			{"SENTINEL MASTER other", unknown},
			{"SENTINEL REPLICAS other", unknown},
			{"SENTINEL SENTINELS other", unknown},
			{"SENTINEL RESET simba", "ERR unknown subcommand 'RESET'. Try SENTINEL HELP."},
			{"CLIENT SETNAME me", "OK"},
			{"CLIENT SETINFO LIB-NAME x", "OK"},
			{"SIMBA.OWNER job", "ERR unknown command 'SIMBA.OWNER', with args beginning with: 'job' "},
			{"SET job me", "ERR unknown command 'SET', with args beginning with: 'job' 'me' "},
			{"MULTI", "ERR unknown command 'MULTI', with args beginning with: "},
			{"PUBLISH +switch-master x", "ERR unknown command 'PUBLISH', with args beginning with: '+switch-master' 'x' "},
		} {
			if got := ask(c, x.command); got != x.want {
				t.Errorf("%s replies %s, want %s", x.command, got, x.want)
			}
		}
		if got := flat(c.Do("HELLO")); !strings.Contains(got, "mode") || !strings.Contains(got, "sentinel") || strings.Contains(got, "master") {
			t.Errorf("HELLO replies %s, want the mode sentinel", got)
		}
		info := flat(dialSentinel(t, a).Do("INFO"))
		for _, want := range []string{"redis_mode:sentinel\r\n", "tcp_port:" + port + "\r\n", "sentinel_masters:1\r\n", "master0:name=simba,status=ok,address=" + strings.Join(lead, ":") + ",slaves=2,sentinels=1\r\n"} {
			if !strings.Contains(info, want) {
				t.Errorf("INFO lacks %q:\n%s", want, info)
			}
		}
		sub := redis.PubSubConn{Conn: dialSentinel(t, a)}
		must(t, sub.PSubscribe("*"))
		sub.Receive()
		subs = append(subs, sub)
		if got := flat(dial(t, a).Do("SENTINEL", "MASTERS")); got != "ERR SENTINEL is served at the address of --cluster-sentinel-addr only" {
			t.Errorf("at the port of clients SENTINEL replies %s", got)
		}
		if got := flat(dial(t, a).Do("ROLE")); got != "[master 0 []]" {
			t.Errorf("at the port of clients ROLE replies %s", got)
		}
	}

	must(t, all[0].stop(t.Context()))
	rest := leaderOf(t, all[1:])
	next := addr(rest[0])
	for _, sub := range subs[1:] {
		message, ok := sub.ReceiveWithTimeout(time.Minute).(redis.Message)
		if want := fmt.Sprintf("simba %s %s %s %s", lead[0], lead[1], next[0], next[1]); !ok || message.Channel != "+switch-master" || string(message.Data) != want {
			t.Errorf("subscribers receive %q on %s, want %q on +switch-master", message.Data, message.Channel, want)
		}
	}

	// Without a leader the last one stays known.
	must(t, rest[0].stop(t.Context()))
	c := dialSentinel(t, rest[1])
	eventually(t, "the Sentinel reports that the leader is lost", func() bool {
		return strings.Contains(flat(c.Do("SENTINEL", "MASTERS")), "flags s_down,o_down,master") &&
			strings.Contains(flat(c.Do("INFO", "sentinel")), "status=odown")
	})
	took := addr(rest[1]) // the leader that stops may hand over to it
	if got := flat(c.Do("SENTINEL", "get-master-addr-by-name", "simba")); got != "["+strings.Join(next, " ")+"]" && got != "["+strings.Join(took, " ")+"]" {
		t.Errorf("without a leader the Sentinel names %s, want the last leader, %s or %s", got, next, took)
	}
}

func TestSentinelWithoutALeaderSoFar(t *testing.T) {
	addrs := freeAddrs(t, 2)
	list := "a=" + addrs[0] + ",b=" + addrs[1]
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, append(announcing(list), "--cluster", list, "--cluster-name", "a")...)
	a.start()
	c := dialSentinel(t, a)
	for command, want := range map[string]string{"MASTERS": "[]", "MASTER simba": "ERR No such master with that name", "GET-MASTER-ADDR-BY-NAME simba": "<nil>"} {
		if got := ask(c, "SENTINEL "+command); got != want {
			t.Errorf("SENTINEL %s replies %s, want %s", command, got, want)
		}
	}
	if got := flat(c.Do("INFO", "sentinel")); !strings.Contains(got, "master0:name=simba,status=odown,address=:,") {
		t.Errorf("INFO replies %s", got)
	}
}

func TestSentinelHasTheUsersOfTheServer(t *testing.T) {
	addrs := freeAddrs(t, 1)
	list := "a=" + addrs[0]
	file := filepath.Join(t.TempDir(), "users")
	const fixed = "user default on >secret ~* &* +@all\n"
	must(t, os.WriteFile(file, []byte(fixed+"user finder on >found +sentinel +subscribe &+switch-master\n"), 0o600))
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, append(announcing(list), "--cluster", list, "--cluster-name", "a", "--aclfile", file)...)
	a.start()
	eventually(t, "serving", a.member.Serves)
	c := dialSentinel(t, a)
	if got := flat(c.Do("SENTINEL", "MASTERS")); got != "NOAUTH Authentication required." {
		t.Errorf("before AUTH the Sentinel replies %s", got)
	}
	if got := flat(c.Do("AUTH", "finder", "wrong")); !strings.HasPrefix(got, "WRONGPASS") {
		t.Errorf("AUTH with a wrong password replies %s", got)
	}
	if got := flat(c.Do("AUTH", "finder", "found")); got != "OK" {
		t.Errorf("AUTH replies %s", got)
	}
	if got := flat(c.Do("INFO")); !strings.HasPrefix(got, "NOPERM") {
		t.Errorf("INFO replies %s to a user who may not use it", got)
	}
	eventually(t, "the Sentinel names the leader", func() bool {
		return flat(c.Do("SENTINEL", "get-master-addr-by-name", "simba")) == "["+strings.ReplaceAll(addrs[0], ":", " ")+"]"
	})
	sub := redis.PubSubConn{Conn: c}
	must(t, sub.Subscribe("+switch-master"))
	sub.Receive()

	must(t, os.WriteFile(file, []byte(fixed), 0o600))
	admin := dial(t, a)
	for _, command := range []string{"AUTH secret", "ACL LOAD"} {
		if got := ask(admin, command); got != "OK" {
			t.Fatalf("%s replies %s", command, got)
		}
	}
	if err, ok := sub.ReceiveWithTimeout(time.Minute).(error); !ok || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the connection of a removed user receives %v, want its end", err)
	}
}

func TestSentinelUsesTLSIfTheServerAcceptsOnlyTLS(t *testing.T) {
	s := newSite(t)
	cluster := freeAddrs(t, 1)
	args := s.args("--data-dir", t.TempDir()+"/data", "--cluster", "a="+cluster[0], "--cluster-name", "a")
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, append(args, announcing("a=127.0.0.1:7371")...)...)
	a.start()
	c := dialSentinel(t, a, redis.DialUseTLS(true), redis.DialTLSConfig(s.clientConfig()))
	eventually(t, "the Sentinel names the leader over TLS", func() bool {
		return flat(c.Do("SENTINEL", "get-master-addr-by-name", "simba")) == "[127.0.0.1 7371]"
	})
	if plain := dialSentinel(t, a); flat(plain.Do("PING")) == "PONG" {
		t.Error("the Sentinel replies without TLS")
	}

	_, err := loadTest(t, append(args, announcing("a=locks.example:7371")...), nil, "")
	want := "--cluster-announce: clients would refuse " + s.path("server.crt") + " at locks.example:7371: x509: "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an announced host that is not in the certificate: %v, want %q", err, want)
	}
	// Clients without TLS check no certificate.
	if _, err := loadTest(t, append(append(args, announcing("a=locks.example:7371")...), "--addr", "127.0.0.1:0"), nil, ""); err != nil {
		t.Errorf("with a plain port too: %v", err)
	}
}
