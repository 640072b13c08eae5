package commands

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// slowBackend returns a backend whose Commit takes 40 ms. A RELEASE takes as many milliseconds as
// its TOKEN.
func slowBackend() *fakeBackend {
	return &fakeBackend{
		release: func(r simba.ReleaseRequest) (bool, simba.Seq, error) {
			time.Sleep(time.Duration(r.Token) * time.Millisecond)
			return true, 1, nil
		},
		commit: func(simba.Seq) error { time.Sleep(40 * time.Millisecond); return nil },
	}
}

func TestTheSlowlogKeepsTheNewestSlowCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(t, Config{Backend: slowBackend()}).dial()
		p.do("CLIENT SETNAME me")
		// The next command is below the threshold, because the time of Commit does not count.
		p.do("SIMBA.RELEASE m c TOKEN 9")
		p.do("SIMBA.RELEASE m c TOKEN 10")
		p.do("SIMBA.RELEASE " + strings.Repeat("m", 130) + " c TOKEN 20")
		p.expect("SLOWLOG LEN", ":2\r\n")
		at := time.Now().Unix()
		entry := func(id, micros int64, args string) string {
			return "*6\r\n" + integers(id) + integers(at) + integers(micros) + args + bulk("pipe") + bulk("me")
		}
		second := entry(1, 20000, bulks("SIMBA.RELEASE", strings.Repeat("m", 128)+"... (2 more bytes)", "c", "TOKEN", "20"))
		p.expect("SLOWLOG GET", "*2\r\n"+second+entry(0, 10000, bulks("SIMBA.RELEASE", "m", "c", "TOKEN", "10")))
		p.expect("SLOWLOG GET 1", "*1\r\n"+second)
		p.expect("CONFIG SET slowlog-max-len 1", ok)
		p.expect("SLOWLOG GET -1", "*1\r\n"+second)
		p.expect("SLOWLOG RESET", ok)
		p.expect("SLOWLOG LEN", ":0\r\n")
		p.expect("CONFIG SET slowlog-log-slower-than 0", ok)
		p.do("COMMAND INFO" + strings.Repeat(" x", 40))
		if got := p.do("SLOWLOG GET 1"); !strings.Contains(got, "*32\r\n") || !strings.Contains(got, bulk("... (11 more arguments)")) {
			t.Errorf("SLOWLOG GET shows a command of 42 arguments as %q, want 32 arguments", got)
		}
		p.expect("CONFIG SET slowlog-log-slower-than -1", ok)
		p.expect("SLOWLOG RESET", ok)
		p.do("SIMBA.RELEASE m c TOKEN 500")
		p.expect("SLOWLOG LEN", ":0\r\n")
	})
}

func TestWaitsInsideExecCountForNoCommand(t *testing.T) {
	const work, parked = 3 * time.Millisecond, 50 * time.Millisecond
	slow := func(c *client) {
		time.Sleep(work + parked)
		c.call.parked += parked
		c.w.Null()
	}
	for how, c := range map[string]struct {
		name   string
		change func(*command)
	}{
		"in one transaction": {"get", func(e *command) { e.keyed = func(t *keyTx, _ [][]byte) error { slow(t.c); return nil } }},
		"each by itself":     {"simba.owner", func(e *command) { e.run = func(c *client, _ [][]byte) error { slow(c); return nil } }},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newEngineSite(t)
				e, err := s.x.table.find([][]byte{[]byte(c.name), []byte("m")})
				if err != nil {
					t.Fatal(err)
				}
				changed := *e.command
				c.change(&changed)
				e.command = &changed
				p := s.dial()
				p.transaction(c.name+" m", c.name+" m")
				info := infoFields(t, p.do("INFO commandstats"))
				for command, want := range map[string]string{c.name: "calls=2,usec=6000,", "exec": "calls=1,usec=6000,"} {
					if got := info["cmdstat_"+command]; !strings.HasPrefix(got, want) {
						t.Errorf("INFO shows cmdstat_%s:%s, want %s", command, got, want)
					}
				}
			})
		})
	}
}

func TestAMonitorSeesCommandsButNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{})
		mon, p := s.dial(), s.dial()
		mon.expect("MONITOR", ok)
		p.do(`SIMBA.ACQUIRE m c 1000`)
		p.do("AUTH default sesam")
		p.do("HELLO 3 AUTH default sesam")
		p.do("CONFIG SET slowlog-max-len 3")
		p.do("nonsense")
		p.do(`ECHO "a\"\\\n\r\t\a\b\x00é"`)
		p.do("MULTI")
		p.do("ECHO queued")
		p.do("EXEC")
		p.do("SIMBA.BREAK m REASON stuck")
		p.do("SLOWLOG LEN")
		p.do("MODULE LIST")
		p.do("CLIENT LIST")
		now := time.Now()
		at := fmt.Sprintf("+%d.%06d [0 pipe] ", now.Unix(), now.Nanosecond()/1000)
		for _, want := range []string{
			`"SIMBA.ACQUIRE" "m" "c" "1000"`,
			`"ECHO" "a\"\\\n\r\t\a\b\x00\xc3\xa9"`,
			`"MULTI"`, `"ECHO" "queued"`, `"EXEC"`,
			`"SIMBA.BREAK" "m" "REASON" "stuck"`,
		} {
			if got := mon.reply(); got != at+want+"\r\n" {
				t.Errorf("the monitor saw %q, want %q", got, at+want)
			}
		}
		mon.send("RESET") // the monitor sees its own RESET, as the last command
		mon.reply()
		if got := mon.reply(); got != "+RESET\r\n" {
			t.Errorf("RESET replied %q, want RESET", got)
		}
		p.do("PING")
		mon.expect("ECHO x", bulk("x"))

		mon.expect("MONITOR", ok)
		mon.nc.Close()
		synctest.Wait()
		if n := s.x.observers.monitors.n.Load(); n != 0 {
			t.Errorf("after the last monitor has disconnected, %d are registered, want none", n)
		}
	})
}

func TestTheIdleTimeoutExcludesMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{})
		s.server.SetIdleTimeout(time.Minute)
		mon := s.dial()
		mon.expect("MONITOR", ok)
		time.Sleep(time.Hour)
		mon.send("RESET")
		mon.reply() // the line that shows RESET
		if got := mon.reply(); got != "+RESET\r\n" {
			t.Fatalf("RESET replied %q, want RESET", got)
		}
		reset := time.Now()
		mon.expectEnd()
		if d := time.Since(reset).Round(time.Second); d != time.Minute {
			t.Errorf("the server closed the connection %v after its RESET, want 1m", d)
		}
	})
}

func TestMonitorLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 3000)
	line := string(monitorLine(time.Unix(1, 0), "pipe", [][]byte{[]byte("ECHO"), []byte(long)}))
	if want := `+1.000000 [0 pipe] "ECHO" "` + long[:1024] + `... (1976 more bytes)"` + "\r\n"; line != want {
		t.Errorf("the line is %q, want %q", line, want)
	}
	args := make([][]byte, 1000)
	for i := range args {
		args[i] = bytes.Repeat([]byte{0}, 60) // 240 bytes when it is quoted
	}
	line = string(monitorLine(time.Unix(1, 0), "pipe", args))
	shown := strings.Count(line, "\" \"")
	if len(line) > monitorLineBytes || len(line) < monitorLineBytes-400 || !strings.HasSuffix(line, fmt.Sprintf(`"... (%d more arguments)"`+"\r\n", len(args)-shown)) {
		t.Errorf("monitorLine returned %d bytes that show %d arguments and end with %s; want about %d bytes and the number of omitted arguments", len(line), shown, line[len(line)-60:], monitorLineBytes)
	}
}

func infoFields(t *testing.T, reply string) map[string]string {
	t.Helper()
	_, text, _ := strings.Cut(reply, "\r\n")
	m := make(map[string]string)
	for _, l := range strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		if l == "" || l[0] == '#' {
			continue
		}
		k, v, found := strings.Cut(l, ":")
		if !found {
			t.Errorf("INFO has a line without a colon: %q", l)
		}
		m[k] = v
	}
	return m
}

func TestInfoShowsRealFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := slowBackend()
		backend.commit = nil
		backend.stats = simba.Stats{Held: 3, Mutexes: 5, Blocked: 1, Polling: 2, Acquired: 10, Renewed: 20, Released: 6, Expired: 1, Broken: 1, Handoffs: 4, Seq: 40, Token: 10, RecoveryDelay: 1500 * time.Millisecond}
		s := newSite(t, Config{
			Backend:     backend,
			Info:        Info{Version: "1.2.3", Engine: "embedded", Durability: "always", Survives: true, Executable: "/bin/simba-resp", TCPPort: 7379, RunID: strings.Repeat("ab", 20)},
			Persistence: func() []Field { return []Field{{"fsyncs", "17"}, {"note", "two\r\nlines"}} },
		})
		p, other := s.dial(), s.dial()
		other.do("SUBSCRIBE a")
		time.Sleep(90 * time.Second)
		p.do("SIMBA.RELEASE m c TOKEN 5")
		p.do("SIMBA.RELEASE m c TOKEN 5")
		p.do("SIMBA.RELEASE m c TOKEN x")
		p.do("SIMBA.RELEASE m")
		p.do("nonsense")
		info := infoFields(t, p.do("INFO everything"))
		for k, want := range map[string]string{
			"redis_version": "7.2.0", "server_name": "simba-resp", "simba_version": "1.2.3", "redis_mode": "standalone", "tcp_port": "7379",
			"run_id": strings.Repeat("ab", 20), "uptime_in_seconds": "90", "executable": "/bin/simba-resp",
			"connected_clients": "2", "blocked_clients": "0", "maxclients": "10000", "pubsub_clients": "1", "monitor_clients": "0",
			"loading": "0", "durability": "always", "survives_restart": "yes", "fsyncs": "17", "note": "two",
			"total_connections_received": "2", "total_commands_processed": "4", "total_error_replies": "3", "pubsub_channels": "1", "expired_keys": "1",
			"role": "master", "connected_slaves": "0", "cluster_enabled": "0",
			"cmdstat_simba.release": "calls=3,usec=10000,usec_per_call=3333.33,rejected_calls=1,failed_calls=1",
			"cmdstat_subscribe":     "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0",
			"errorstat_ERR":         "count=3",
			"engine":                "embedded", "mutexes": "5", "mutexes_held": "3", "waiters_blocked": "1", "waiters_polling": "2", "tenures_acquired": "10",
			"tenures_handed_on": "4", "tenures_released": "6", "tenures_expired": "1", "tenures_broken": "1", "leases_renewed": "20", "last_token": "10",
			"last_seq": "40", "recovery_delay_ms": "1500", "db0": "keys=3,expires=3,avg_ttl=0",
		} {
			if info[k] != want {
				t.Errorf("INFO shows %s:%s, want %s", k, info[k], want)
			}
		}
		for _, k := range []string{"used_memory", "used_memory_rss", "process_id", "total_net_input_bytes", "total_net_output_bytes"} {
			if info[k] == "" || info[k] == "0" {
				t.Errorf("INFO shows %s:%s, want a figure above 0", k, info[k])
			}
		}
	})
}

func TestInfoShowsTheSectionsAskedFor(t *testing.T) {
	p := newSite(t, Config{}).dial()
	headings := func(command string) string {
		var names []string
		for _, l := range lines(p.do(command)) {
			if name, ok := strings.CutPrefix(l, "# "); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		return strings.Join(names, " ")
	}
	const standard = "Server Clients Memory Persistence Stats Replication CPU Errorstats Cluster Simba Keyspace"
	for command, want := range map[string]string{
		"INFO": standard, "INFO default": standard, "INFO SERVER": "Server", "INFO keyspace server": "Server Keyspace", "INFO nonsense": "",
		"INFO all":                  "Server Clients Memory Persistence Stats Replication CPU Commandstats Errorstats Cluster Simba Keyspace",
		"INFO default commandstats": "Server Clients Memory Persistence Stats Replication CPU Commandstats Errorstats Cluster Simba Keyspace",
	} {
		if got := headings(command); got != want {
			t.Errorf("%s has the sections %q, want %q", command, got, want)
		}
	}
	p.expect("INFO nonsense", "$0\r\n\r\n")
	p.do("HELLO 3")
	if got := p.do("INFO server"); !strings.HasPrefix(got, "=") || !strings.Contains(got, "\r\ntxt:# Server\r\n") {
		t.Errorf("in RESP3 INFO replied %.30q, want a verbatim string", got)
	}
}

func TestTheKeyspaceIsTheHeldMutexes(t *testing.T) {
	backend := &fakeBackend{
		owner: func(m string) (simba.Tenure, simba.Seq, error) {
			if m != "job" {
				return simba.Tenure{}, 0, nil
			}
			return simba.Tenure{Owner: "abc", Token: 1, Waiters: 2}, 0, nil
		},
		scan: func(r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
			page := simba.ScanPage{Cursor: 5}
			for _, m := range []string{"job", "jam"} {
				if r.Match == nil || r.Match(m) {
					page.Mutexes = append(page.Mutexes, m)
				}
			}
			return page, 0, nil
		},
	}
	p := newSite(t, Config{Backend: backend}).dial()
	page := func(keys ...string) string { return "*2\r\n" + bulk("5") + bulks(keys...) }
	p.expect("SCAN 0", page("simba:{job}", "simba:{jam}"))
	p.expect("SCAN 0 COUNT 1000000", page("simba:{job}", "simba:{jam}"))
	p.expect("SCAN 0 TYPE hash", failed(string(errScanType)))
	p.expect("SCAN 0 MATCH simba:{*o*}", page("simba:{job}"))
	p.expect("SCAN 0 MATCH j*", page())
	p.expect("SIMBA.SCAN 0 MATCH j?b", page("job"))
	p.expect("TYPE simba:{job}", "+string\r\n")
	p.expect("TYPE simba:{jam}", "+none\r\n")
	p.expect("TYPE job", "+none\r\n")
	p.expect("TYPE simba:{a{b}", "+none\r\n")
	p.expect("STRLEN simba:{job}", ":3\r\n")
	p.expect("STRLEN simba:{jam}", ":0\r\n")
}
