package main

import (
	"strings"
	"testing"
)

func TestErrorsOfTheClusterNameTheSetting(t *testing.T) {
	const three = "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"
	const announcing = "--cluster " + three + " --cluster-name a --cluster-sentinel-addr 127.0.0.1:1"
	for _, test := range []struct{ args, want string }{
		{"--cluster-name a", "--cluster-name: it needs --cluster"},
		{"--cluster-insecure --cluster-election 2s", "--cluster-insecure: it needs --cluster"},
		{"--cluster " + three, "--cluster-name: --cluster needs it"},
		{"--cluster " + three + " --cluster-name d", "--cluster-name: 'd' is not in --cluster"},
		{"--cluster a=127.0.0.1:1,a=127.0.0.1:2 --cluster-name a", "--cluster: the name a is there twice"},
		{"--cluster a=127.0.0.1:1,b=127.0.0.1:1 --cluster-name a", "--cluster: the address 127.0.0.1:1 is there twice"},
		{"--cluster a=127.0.0.1:1,127.0.0.1:2 --cluster-name a", "--cluster: '127.0.0.1:2' is not name=host:port"},
		{"--cluster a=127.0.0.1:1, --cluster-name a", "--cluster: '' is not name=host:port"},
		{"--cluster a=127.0.0.1 --cluster-name a", "--cluster: member a: '127.0.0.1' is not host:port"},
		{"--cluster a=127.0.0.1:x --cluster-name a", "--cluster: member a: port 'x' is not a number"},
		{"--cluster a=127.0.0.1:0 --cluster-name a", "--cluster: member a: no other host can connect to '127.0.0.1:0'"},
		{"--cluster a=:1 --cluster-name a --cluster-insecure", "--cluster: member a: no other host can connect to ':1'"},
		{"--cluster a=0.0.0.0:1 --cluster-name a --cluster-insecure", "--cluster: member a: no other host can connect to '0.0.0.0:1'"},
		{"--cluster a/b=127.0.0.1:1 --cluster-name a/b", "--cluster: 'a/b' is not a name"},
		{"--cluster a=10.0.0.1:1 --cluster-name a", "--cluster: member a is reached at 10.0.0.1:1 over a network: set --cluster-cert-file"},
		{"--cluster a=127.0.0.1:1,b=simba-1:1 --cluster-name a", "--cluster: member b is reached at simba-1:1 over a network"},
		{"--cluster " + three + " --cluster-name a --cluster-cert-file x --cluster-key-file y", "--cluster-ca-cert-file: it is missing"},
		{"--cluster " + three + " --cluster-name a --cluster-cert-file x --cluster-key-file y --cluster-ca-cert-file /missing", "--cluster-ca-cert-file: open /missing"},
		{"--cluster " + three + " --cluster-name a --durability async", "--durability: --cluster needs always"},
		{"--cluster " + three + " --cluster-name a --durability memory", "--durability: --cluster needs always"},
		{"--cluster " + three + " --cluster-name a --recovery-delay 1m", "--recovery-delay: it has no effect with --cluster"},
		{"--cluster " + three + " --cluster-name a --engine redis --redis-url redis://h", "--cluster: it needs --engine embedded"},
		{"--cluster-sentinel-addr 127.0.0.1:1", "--cluster-sentinel-addr: it needs --cluster-announce"},
		{"--cluster-sentinel-addr 127.0.0.1:1 --cluster-announce " + three, "--cluster-announce: it needs --cluster"},
		{announcing, "--cluster-sentinel-addr: it needs --cluster-announce"},
		{announcing + " --cluster-announce a=127.0.0.1:1,b=127.0.0.1:2", "--cluster-announce: it must name the members of --cluster"},
		{announcing + " --cluster-announce " + three + ",d=127.0.0.1:4", "--cluster-announce: it must name the members of --cluster"},
		{announcing + " --cluster-announce a=127.0.0.1,b=127.0.0.1:2,c=127.0.0.1:3", "--cluster-announce: member a: '127.0.0.1' is not host:port"},
		{announcing + " --cluster-announce a=:1,b=127.0.0.1:2,c=127.0.0.1:3", "--cluster-announce: member a: no other host can connect to ':1'"},
		{"--cluster " + three + " --cluster-name a --cluster-announce " + three + " --cluster-sentinel-addr 0.0.0.0:1", "--cluster-sentinel-addr: 0.0.0.0:1 is open to other machines"},
		{"--cluster " + three + " --cluster-name a --cluster-heartbeat 1ms", "--cluster-heartbeat: 1ms is out of range, 10ms to 12s"},
		{"--cluster " + three + " --cluster-name a --cluster-election 499ms", "--cluster-election: 499ms is out of range, 500ms (5 times --cluster-heartbeat) to 1m0s"},
	} {
		if _, err := loadTest(t, strings.Fields(test.args), nil, ""); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s:\n%v\nwant an error that says %q", test.args, err, test.want)
		}
	}
}

func TestClusterHasAnyNumberOfMembers(t *testing.T) {
	for _, args := range []string{
		"--cluster a=127.0.0.1:1 --cluster-name a",
		"--cluster a=[::1]:1,b=localhost:2 --cluster-name b",
		"--cluster a=10.0.0.1:1,b=10.0.0.2:1,c=simba-2:1 --cluster-name c --cluster-insecure",
	} {
		c, err := loadTest(t, strings.Fields(args), nil, "")
		if err != nil || c.self() == nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}
