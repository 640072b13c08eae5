package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// members starts a cluster of three members, with TLS between them.
func members(t *testing.T, args ...string) (all []*app) {
	t.Helper()
	dir := t.TempDir()
	authority := certs.NewAuthority(t, "test CA")
	authority.Write(t, dir, "ca")
	authority.Sign(t, certs.Leaf{Name: "member"}).Write(t, dir, "member")
	addrs := freeAddrs(t, 3)
	args = append(args, "--cluster", fmt.Sprintf("a=%s,b=%s,c=%s", addrs[0], addrs[1], addrs[2]), "--cluster-heartbeat", "20ms", "--cluster-election", "300ms",
		"--cluster-cert-file", dir+"/member.crt", "--cluster-key-file", dir+"/member.key", "--cluster-ca-cert-file", dir+"/ca.crt",
		"--http-addr", "127.0.0.1:0")
	for _, name := range []string{"a", "b", "c"} {
		var log bytes.Buffer
		a, _ := newTestApp(t, &log, append(args, "--cluster-name", name)...)
		t.Cleanup(func() {
			if t.Failed() {
				a.log.out.flush(time.Minute)
				t.Logf("member %s:\n%s", name, &log)
			}
		})
		a.start()
		all = append(all, a)
	}
	return all
}

// leaderOf waits until one of the members leads and all others know it, and returns it as the first.
func leaderOf(t *testing.T, all []*app) (sorted []*app) {
	t.Helper()
	eventually(t, "one leader that all members know", func() bool {
		sorted = nil
		for _, a := range all {
			if a.member.Serves() {
				sorted = append([]*app{a}, sorted...)
			} else if a.member.monitored().HasLeader {
				sorted = append(sorted, a)
			}
		}
		return len(sorted) == len(all) && sorted[0].member.Serves() && !sorted[1].member.Serves()
	})
	return sorted
}

// acquire returns the status of SIMBA.ACQUIRE.
func acquire(t *testing.T, c redis.Conn, mutex, contender, option string) string {
	t.Helper()
	reply, err := redis.Values(c.Do("SIMBA.ACQUIRE", mutex, contender, "60000", option))
	must(t, err)
	status, err := redis.String(reply[1], nil)
	must(t, err)
	return status
}

func TestEachMemberPassesItsConnectionsOnAsTheyAre(t *testing.T) {
	all := leaderOf(t, members(t))
	for i, a := range all {
		c := dial(t, a)
		client, err := redis.String(c.Do("CLIENT", "INFO"))
		if err != nil || !strings.Contains(client, " laddr="+a.ln.Addr().String()+" ") {
			t.Errorf("CLIENT INFO at member %d replies %q, %v; want laddr=%v, the address of that member", i, client, err, a.ln.Addr())
		}
		half, err := net.Dial("tcp", a.ln.Addr().String())
		must(t, err)
		_, err = half.Write([]byte("PING\r\nFOO\r\n"))
		must(t, errors.Join(err, half.(*net.TCPConn).CloseWrite()))
		expectEnd(t, half, "+PONG\r\n-ERR unknown command 'FOO', with args beginning with: \r\n")
		half.Close()
		for path, want := range map[string]int{"/readyz": 200, "/leader": map[bool]int{true: 200, false: 404}[i == 0]} {
			reply, err := http.Get("http://" + a.httpLn.Addr().String() + path)
			must(t, err)
			reply.Body.Close()
			if reply.StatusCode != want {
				t.Errorf("%s of member %d replies %d, want %d", path, i, reply.StatusCode, want)
			}
		}
	}
	info, err := redis.String(dial(t, all[1]).Do("INFO", "cluster"))
	if want := "cluster_leader:" + all[0].cfg.ClusterName + "\r\n"; err != nil || !strings.Contains(info, want) || !strings.Contains(info, "cluster_members:3\r\n") {
		t.Errorf("INFO cluster replies %q, %v; want %q", info, err, want)
	}
}

func TestLeaderThatStopsHandsOverAndReleasesNoSessionLease(t *testing.T) {
	all := leaderOf(t, members(t))
	direct, passedOn := dial(t, all[0]), dial(t, all[1])
	for i, c := range []redis.Conn{direct, passedOn} {
		if got := acquire(t, c, fmt.Sprint("job-", i), "owner", "SESSION"); got != "acquired" {
			t.Fatalf("ACQUIRE replies %s, want acquired", got)
		}
	}
	began := time.Now()
	must(t, all[0].stop(context.Background()))
	t.Logf("the leader stopped in %v", time.Since(began))
	for i, c := range []redis.Conn{direct, passedOn} {
		if got, err := c.Do("PING"); err == nil {
			t.Errorf("connection %d replies %v after the leader has stopped", i, got)
		}
	}
	rest := leaderOf(t, all[1:])
	t.Logf("another member serves after %v", time.Since(began))
	for i, a := range rest {
		c := dial(t, a)
		for job := range 2 {
			if got := acquire(t, c, fmt.Sprint("job-", job), "other", "NOQUEUE"); got != "busy" {
				t.Errorf("ACQUIRE of job-%d at member %d replies %s, want busy", job, i, got)
			}
		}
	}
}

// expectEnd reads until the end of the stream, and expects exactly the wanted bytes.
func expectEnd(t *testing.T, nc net.Conn, want string) {
	t.Helper()
	if got, err := io.ReadAll(nc); string(got) != want || err != nil {
		t.Errorf("received %d bytes, %.100q (%v), want %.100q", len(got), got, err, want)
	}
}

// clusterCLI runs simba-resp cluster at a member, and returns the words of the lines of its table.
func clusterCLI(t *testing.T, a *app, args ...string) (rows [][]string, err error) {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{"cluster"}, append(args, "--url", "redis://"+a.ln.Addr().String())...)
	log := newLogBuffer(t.Output())
	defer log.close(time.Minute)
	err = run(t.Context(), args, func(string) string { return "" }, &out, log)
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	return rows, err
}

func TestMemberReadsItsCertificateAgain(t *testing.T) {
	a := leaderOf(t, members(t))[0]
	shown := func() string {
		conn, err := tls.Dial("tcp", a.cfg.self().Addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it looks at any certificate
		must(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	dir := filepath.Dir(a.cfg.ClusterCertFile)
	if name := shown(); name != "member" {
		t.Errorf("the certificate of the member is of %q", name)
	}
	authority := certs.NewAuthority(t, "next CA")
	authority.Sign(t, certs.Leaf{Name: "next"}).Write(t, dir, "member")
	authority.Write(t, dir, "ca")
	if name := shown(); name != "next" {
		t.Errorf("after a new certificate, that of the member is of %q", name)
	}
	must(t, os.WriteFile(a.cfg.ClusterKeyFile, []byte("garbage"), 0o600))
	if name := shown(); name != "next" {
		t.Errorf("with a damaged key, the certificate of the member is of %q", name)
	}
}

func TestMembersChangeByTheCommandLine(t *testing.T) {
	all := leaderOf(t, members(t))
	name := func(a *app) string { return a.cfg.ClusterName }
	rows, err := clusterCLI(t, all[1], "status")
	if err != nil || len(rows) != 5 {
		t.Fatalf("status prints %q, %v", rows, err)
	}
	for _, row := range rows[2:] {
		if want := fmt.Sprint(row[0] == name(all[0])); row[2] != "voter" || row[3] != want || row[4] != "true" {
			t.Errorf("status prints %q, want voters that are reached, and the leader %s", row, name(all[0]))
		}
	}
	if _, err := clusterCLI(t, all[1], "remove", name(all[0])); err == nil || !strings.Contains(err.Error(), "leads: transfer the lead to another member first") {
		t.Errorf("remove of the leader: %v", err)
	}
	for _, a := range []*app{all[0], all[1]} { // at the leader, and at a follower
		rows, err = clusterCLI(t, a, "transfer", name(all[2]))
		if err != nil || len(rows) != 5 {
			t.Fatalf("transfer prints %q, %v", rows, err)
		}
		for _, row := range rows[2:] {
			if want := fmt.Sprint(row[0] == name(all[2])); row[3] != want {
				t.Errorf("after a transfer to %s: %q", name(all[2]), row)
			}
		}
		all[0], all[2] = all[2], all[0]
	}
	if _, err := clusterCLI(t, all[0], "transfer", "x"); err == nil || !strings.Contains(err.Error(), "no member x is a voter that answers") {
		t.Errorf("transfer to a stranger: %v", err)
	}
	must(t, all[2].stop(t.Context()))
	rows, err = clusterCLI(t, all[1], "remove", name(all[2]))
	if err != nil || len(rows) != 4 {
		t.Errorf("remove prints %q, %v", rows, err)
	}
}
