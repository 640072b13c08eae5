package cases

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/clients/builds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// world is what the steps of one case act on.
type world struct {
	t         *testing.T
	c         testCase
	variant   variant
	command   []string
	server    *simbatest.Server
	target    string              // the address for clients
	members   []*simbatest.Server // of a cluster
	sentinels []string            // their addresses for clients
	ca        string              // the file of the authority of the server's certificate; "" = clients use no TLS
	agents    map[string]*agent
	pending   map[string]int             // the id of the request of each name
	vars      map[string]int64           // tokens
	at        map[string]int64           // when each named reply and event came
	traps     map[string]<-chan struct{} // of the links, by step; closed when the request has come
}

var series = regexp.MustCompile(`\{1\.\.(\d+)\}`)

func run(t *testing.T, c testCase, v variant, command []string) {
	w := &world{
		t: t, c: c, variant: v, command: command, agents: make(map[string]*agent),
		pending: make(map[string]int), vars: make(map[string]int64), at: make(map[string]int64),
		traps: make(map[string]<-chan struct{}),
	}
	w.open()
	for i, s := range c.Steps {
		t.Logf("%d. %v", i+1, s)
		times := 1
		for _, text := range s {
			if match := series.FindStringSubmatch(text); match != nil {
				times, _ = strconv.Atoi(match[1])
			}
		}
		for n := range times {
			for _, actor := range slices.Sorted(maps.Keys(s)) {
				w.step(strings.Fields(actor), series.ReplaceAllString(s[actor], strconv.Itoa(n+1)))
			}
		}
	}
	w.caught()
}

func (w *world) open() {
	t := w.t
	flags := slices.Clone(w.c.Server)
	dir := t.TempDir()
	if w.c.ACL != "" {
		flags = append(flags, "--aclfile", builds.Write(t, filepath.Join(dir, "users.acl"), w.c.ACL))
	}
	if w.c.TLS != "" {
		authority := certs.NewAuthority(t, "cases")
		leaf := certs.Leaf{}
		if w.c.TLS != "127.0.0.1" {
			leaf.Host = w.c.TLS
		}
		cert, key := authority.Sign(t, leaf).Write(t, dir, "server")
		w.ca = authority.Write(t, dir, "ca")
		w.target = net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
		flags = append(flags, "--tls-addr", w.target, "--tls-cert-file", cert, "--tls-key-file", key)
	}
	if w.c.Cluster {
		w.members, w.sentinels = simbatest.SentinelMembers(t)
		w.target = "" // a link would hide what Sentinel says
		w.follow()
		return
	}
	if w.c.Engine != "" {
		_, more := simbatest.Store(t, w.c.Engine)
		flags = append(more, flags...)
	}
	w.server = simbatest.New(t, flags...)
	if w.target == "" {
		w.target = w.server.Addr
	}
	if len(w.c.Steps) == 0 || w.c.Steps[0]["server"] != "is away" {
		w.server.Start()
	}
}

// follow waits until a member of the cluster leads, which is the server then.
func (w *world) follow() {
	w.t.Helper()
	simbatest.Await(w.t, "a member leads", func() bool {
		leader := simbatest.Leader(w.members)
		i := slices.IndexFunc(w.members, func(s *simbatest.Server) bool {
			return leader >= 0 && s.Member() == simbatest.MemberNames[leader:leader+1]
		})
		if i >= 0 {
			w.server = w.members[i]
		}
		return i >= 0
	})
}

// client returns the agent with a name. The first call starts it.
func (w *world) client(name string) *agent {
	a := w.agents[name]
	if a == nil {
		var err error
		a, err = startAgent(w.t, w.command, stores.NewLink(w.t, w.target))
		simbatest.Must(w.t, err)
		w.agents[name] = a
		scheme := "redis://"
		if w.ca != "" {
			scheme = "rediss://"
		}
		if w.c.User != "" {
			scheme += w.c.User + "@"
		}
		request := map[string]any{
			"do": "open", "url": scheme + a.link.Addr(), "protocol": 2 + len(w.agents)%2, "variant": w.variant.option,
			"timeout": 10_000, // ms; many programs start at a time
		}
		if w.ca != "" {
			request["ca"] = w.ca
		}
		if w.sentinels != nil {
			request["sentinel"] = strings.Join(w.sentinels, ",")
		}
		opened, err := a.ask(request)
		simbatest.Must(w.t, err)
		w.expect(opened, "")
	}
	return a
}

func (w *world) reply(a *agent, id int) line {
	w.t.Helper()
	l, err := a.reply(id)
	simbatest.Must(w.t, err)
	return l
}

func (w *world) step(actor []string, text string) {
	w.t.Helper()
	text, want, _ := strings.Cut(text, "->")
	words := strings.Fields(text)
	switch {
	case actor[0] == "wait":
		time.Sleep(duration(w.t, words[0]))
	case actor[0] == "order":
		w.order(strings.Split(text, ","))
	case actor[0] == "server":
		w.ofServer(words)
	case actor[0] == "net":
		w.ofLink(w.client(actor[1]).link, words)
	case actor[0] == "process":
		w.ofProcess(w.client(actor[1]), words[0])
	default:
		w.ofClient(w.client(actor[0]), words, want)
	}
}

// ofClient is a step of a client:
//
//	lock M as X [limit=1s], try_lock M as X, lead M as X [work=1s], every M as X period=1s, watch M as X
//	unlock X, held X, stop X, owner M, check M T, block 2s, close
//	begin …             sends the request and does not wait
//	end X               waits for the reply to the last request that was begun as X, or to unlock X
//	event KIND X        waits for an event
//	no KIND X           checks that no further event of the kind has come
//
// All requests that contend have the options id=I ttl=2s grace=1s. Without ttl, a lease is longer than
// every test, so that only a release or a notice ends it. ttl=default asks for the client's default.
func (w *world) ofClient(a *agent, words []string, want string) {
	w.t.Helper()
	switch words[0] {
	case "begin":
		w.send(a, words[1:])
	case "end":
		l := w.reply(a, w.pending[words[1]])
		w.at["end "+words[1]] = l.At
		w.expect(l, want)
	case "event":
		l, err := a.receive(strings.Join(words, " "), func(l line) bool { return l.Event == words[1] && l.As == words[2] })
		simbatest.Must(w.t, err)
		w.at[words[1]+" "+words[2]] = l.At
		w.compare(l.fields, want)
	case "no":
		if a.has(func(l line) bool { return l.Event == words[1] && l.As == words[2] }) {
			w.t.Fatalf("an event %s of %s has come", words[1], words[2])
		}
	default:
		l := w.reply(a, w.send(a, words))
		w.at[strings.Join(words[:min(2, len(words))], " ")] = l.At
		w.expect(l, want)
	}
}

// Lease of a request without the option, in ms.
const (
	defaultTTL   = 3_600_000
	defaultGrace = 2000
)

// options are those of the requests that contend, or watch.
var options = map[string][]string{
	"lock": {"id", "ttl", "grace", "limit"}, "try_lock": {"id", "ttl", "grace"}, "lead": {"id", "ttl", "grace", "work"},
	"every": {"id", "ttl", "grace", "period"}, "watch": {},
}

func (w *world) send(a *agent, words []string) int {
	w.t.Helper()
	r := map[string]any{"do": words[0]}
	switch words[0] {
	case "unlock", "held", "stop":
		r["as"] = words[1]
	case "owner":
		r["mutex"] = words[1]
	case "check":
		r["mutex"], r["token"] = words[1], w.known(words[2])
	case "block":
		r["ms"] = duration(w.t, words[1]).Milliseconds()
	case "close":
	default:
		w.contend(r, words)
	}
	id, err := a.send(r)
	simbatest.Must(w.t, err)
	if as, ok := r["as"].(string); ok && words[0] != "held" && words[0] != "stop" {
		w.pending[as] = id
	}
	return id
}

// contend adds the mutex, the name and the options.
func (w *world) contend(r map[string]any, words []string) {
	w.t.Helper()
	known, ok := options[words[0]]
	if !ok || len(words) < 4 || words[2] != "as" {
		w.t.Fatalf("unknown request of a client: %v", words)
	}
	r["mutex"], r["as"] = words[1], words[3]
	if len(known) > 0 {
		r["ttl"], r["grace"] = defaultTTL, defaultGrace
	}
	for _, option := range words[4:] {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case !slices.Contains(known, name):
			w.t.Fatalf("%s has no option %s", words[0], name)
		case option == "ttl=default":
			delete(r, "ttl")
			delete(r, "grace")
		case name == "id":
			r["id_of"] = value
		default:
			r[name] = duration(w.t, value).Milliseconds()
		}
	}
}

// known returns the value of a variable that an earlier step has set.
func (w *world) known(name string) int64 {
	w.t.Helper()
	value, ok := w.vars[name]
	if !ok {
		w.t.Fatalf("no step has set %s", name)
	}
	return value
}

// expect compares a reply with what the step wants: "error=lost|unavailable", or fields.
func (w *world) expect(l line, want string) {
	w.t.Helper()
	codes, wantsError := strings.CutPrefix(strings.TrimSpace(want), "error=")
	switch {
	case wantsError && slices.Contains(strings.Split(codes, "|"), l.Error) && l.Error != "":
	case wantsError:
		w.t.Fatalf("the reply has the error %q (%s) and %v, want the error %s", l.Error, l.Text, l.OK, codes)
	case strings.TrimSpace(want) == "any":
	case l.Error != "":
		w.t.Fatalf("the reply has the error %s: %s", l.Error, l.Text)
	default:
		w.compare(l.OK, want)
	}
}

// compare compares fields with "held=true token=T token>T id~billing:".
func (w *world) compare(fields map[string]any, want string) {
	w.t.Helper()
	for _, term := range strings.Fields(want) {
		i := strings.IndexAny(term, "=>~")
		if i < 0 {
			w.t.Fatalf("the step wants %q, which is no comparison", term)
		}
		name, op, value := term[:i], term[i], term[i+1:]
		got := fields[name]
		ok := fmt.Sprint(got) == value
		if number, is := got.(float64); is && value != "" && unicode.IsUpper(rune(value[0])) {
			if _, set := w.vars[value]; !set && op == '=' {
				w.vars[value] = int64(number)
			}
			known := w.known(value)
			ok = op == '=' && int64(number) == known || op == '>' && int64(number) > known
		} else if op == '~' {
			ok = strings.HasPrefix(fmt.Sprint(got), value)
		}
		if !ok {
			w.t.Fatalf("the step wants %s, but there is %v (%v)", term, fields, w.vars)
		}
	}
}

func (w *world) order(names []string) {
	w.t.Helper()
	var last int64
	for _, name := range names {
		at, ok := w.at[strings.TrimSpace(name)]
		if !ok || at < last {
			w.t.Fatalf("%s came at %d µs, and the one before at %d µs: not in the order of the step (%v)", name, at, last, w.at)
		}
		last = at
	}
}

// ofServer is a step of the server:
//
//	is away, start, kill; the rest of a cluster goes on
//	waits are 1         waits until so many clients wait in SIMBA.NEXT
//	queue M has 2       waits until the queue has so many entries
//	free M              waits until the mutex is free
//	calls of C reach 2  waits until the server has had so many calls of the command
//	subscribers of M are 1
//	break M
//	check M T is 1
//	tenures M are 1     counts the tenures in the history
func (w *world) ofServer(words []string) {
	w.t.Helper()
	switch words[0] {
	case "is":
	case "start":
		w.server.Start()
	case "kill":
		w.server.Kill()
		if w.members != nil {
			w.members = slices.DeleteFunc(w.members, func(s *simbatest.Server) bool { return s == w.server })
			w.follow()
		}
	case "waits":
		n, err := strconv.Atoi(words[2])
		simbatest.Must(w.t, err)
		w.until(strings.Join(words, " "), func(c redis.Conn) bool {
			blocked, err := simbatest.ClientsInfo(c, "blocked_clients")
			return err == nil && blocked == n
		})
	case "queue":
		n, err := strconv.Atoi(words[3])
		simbatest.Must(w.t, err)
		w.until(strings.Join(words, " "), func(c redis.Conn) bool {
			list, err := redis.Values(c.Do("SIMBA.QUEUE", words[1]))
			return err == nil && len(list) == n
		})
	case "calls":
		n, err := strconv.Atoi(words[4])
		simbatest.Must(w.t, err)
		of := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(words[2]) + `:calls=(\d+),`)
		w.until(strings.Join(words, " "), func(c redis.Conn) bool {
			stats, err := redis.String(c.Do("INFO", "commandstats"))
			match := of.FindStringSubmatch(stats)
			if err != nil || match == nil {
				return false
			}
			calls, err := strconv.Atoi(match[1])
			return err == nil && calls >= n
		})
	case "subscribers":
		channel := "simba:{" + words[2] + "}"
		w.until(strings.Join(words, " "), func(c redis.Conn) bool {
			numbers, err := redis.IntMap(c.Do("PUBSUB", "NUMSUB", channel))
			return err == nil && strconv.Itoa(numbers[channel]) == words[4]
		})
	case "free":
		w.until(strings.Join(words, " "), func(c redis.Conn) bool {
			r, err := simbatest.ToRecord(c.Do("SIMBA.OWNER", words[1]))
			return err == nil && r == nil
		})
	case "break":
		w.do(1, "SIMBA.BREAK", words[1])
	case "check":
		n, err := strconv.ParseInt(words[4], 10, 64)
		simbatest.Must(w.t, err)
		w.do(n, "SIMBA.CHECK", words[1], w.known(words[2]))
	case "tenures":
		c := w.conn()
		defer c.Close()
		events, err := simbatest.ToRecords(c.Do("SIMBA.HISTORY", words[1]))
		simbatest.Must(w.t, err)
		n := 0
		for _, e := range events {
			if e.Text("event") == "acquired" {
				n++
			}
		}
		if strconv.Itoa(n) != words[3] {
			w.t.Fatalf("the mutex had %d tenures", n)
		}
	default:
		w.t.Fatalf("unknown step of the server: %v", words)
	}
}

// ofLink is a step of a link:
//
//	blackhole, heal, reset
//	delays 500ms                   delays all traffic in each direction
//	drops the reply to TEXT        to the first request with the text, and resets its connection
//	stalls at TEXT                 stalls the connection of the first request with the text
//	caught                         waits for the requests of the traps so far, which each case does at its end
func (w *world) ofLink(l *stores.Link, words []string) {
	w.t.Helper()
	switch words[0] {
	case "blackhole":
		l.Blackhole()
	case "heal":
		l.Heal()
	case "reset":
		l.Reset()
	case "delays":
		l.Delay(duration(w.t, words[1]))
	case "drops":
		w.traps[strings.Join(words, " ")] = l.DropReplyTo(words[4])
	case "stalls":
		w.traps[strings.Join(words, " ")] = l.StallFrom(words[2])
	case "caught":
		w.caught()
	default:
		w.t.Fatalf("unknown step of a link: %v", words)
	}
}

// caught waits for the requests for which the links have a trap.
func (w *world) caught() {
	w.t.Helper()
	for step, came := range w.traps {
		select {
		case <-came:
		case <-time.After(patience):
			w.t.Fatalf("no request came to a link that %s", step)
		}
	}
}

// ofProcess is a step of a client's process: freeze, thaw, kill.
func (w *world) ofProcess(a *agent, verb string) {
	w.t.Helper()
	switch verb {
	case "freeze":
		stores.Freeze(a.cmd.Process)
	case "thaw":
		simbatest.Must(w.t, a.cmd.Process.Signal(syscall.SIGCONT))
	case "kill":
		simbatest.Must(w.t, a.cmd.Process.Kill())
	default:
		w.t.Fatalf("unknown step of a process: %s", verb)
	}
}

// conn connects as the administrator, who is the default user.
func (w *world) conn() redis.Conn {
	w.t.Helper()
	c, err := w.dial()
	simbatest.Must(w.t, err)
	return c
}

func (w *world) dial() (redis.Conn, error) {
	var options []redis.DialOption
	if w.c.ACL != "" {
		options = append(options, redis.DialUsername("ops"), redis.DialPassword("ops-password"))
	}
	return redis.Dial("tcp", w.server.Addr, options...)
}

func (w *world) do(want int64, command string, args ...any) {
	w.t.Helper()
	c := w.conn()
	defer c.Close()
	if got, err := redis.Int64(c.Do(command, args...)); err != nil || got != want {
		w.t.Fatalf("%s %v returns %d, %v, want %d", command, args, got, err, want)
	}
}

func (w *world) until(what string, holds func(redis.Conn) bool) {
	w.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := w.dial()
		if err == nil {
			is := holds(c)
			c.Close()
			if is {
				return
			}
		}
		if time.Now().After(late) {
			w.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	simbatest.Must(t, err)
	return d
}
