package commands

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestMain(m *testing.M) { leaks.Exit(m.Run()) }

// fakeBackend calls its functions, and records all calls. A nil function returns zero values.
type fakeBackend struct {
	acquire func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error)
	guard   func(simba.GuardRequest) (simba.Outcome, error)
	release func(simba.ReleaseRequest) (bool, simba.Seq, error)
	owner   func(string) (simba.Tenure, simba.Seq, error)
	queue   func(string, int) ([]simba.QueueEntry, simba.Seq, error)
	scan    func(simba.ScanRequest) (simba.ScanPage, simba.Seq, error)
	check   func(string, uint64) (bool, simba.Seq, error)
	break_  func(string, string) (bool, simba.Seq, error)
	history func(simba.HistoryRequest) ([]simba.Event, simba.Seq, error)
	commit  func(simba.Seq) error
	stats   simba.Stats

	subscribed func(context.Context, string) error

	mu        sync.Mutex // protects the rest
	calls     []string
	committed []simba.Seq
}

var _ simba.Backend = (*fakeBackend)(nil)

func (f *fakeBackend) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

// takeCalls returns the calls so far except Commit, and forgets them.
func (f *fakeBackend) takeCalls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// commits returns the committed Seqs so far, and forgets them.
func (f *fakeBackend) commits() []simba.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.committed
	f.committed = nil
	return s
}

func (f *fakeBackend) Acquire(_ context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	f.note("acquire %s %s %v+%v noqueue=%v session=%v wait=%v%s", r.Mutex, r.Contender, r.TTL, r.Transition, r.NoQueue, r.Session != 0, r.Waiter != nil,
		map[bool]string{true: " full=true"}[r.Full])
	if f.acquire == nil {
		return simba.Outcome{}, nil, nil
	}
	return f.acquire(r)
}

func (f *fakeBackend) Guard(_ context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	f.note("guard %s %s %v+%v token=%d", r.Mutex, r.Contender, r.TTL, r.Transition, r.Token)
	if f.guard == nil {
		return simba.Outcome{}, nil
	}
	return f.guard(r)
}

func (f *fakeBackend) Release(_ context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	f.note("release %s %s token=%d session=%v reason=%q", r.Mutex, r.Contender, r.Token, r.Session != 0, r.Reason)
	if f.release == nil {
		return false, 0, nil
	}
	return f.release(r)
}

func (f *fakeBackend) Owner(_ context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	f.note("owner %s", mutex)
	if f.owner == nil {
		return simba.Tenure{}, 0, nil
	}
	return f.owner(mutex)
}

func (f *fakeBackend) Queue(_ context.Context, mutex string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	f.note("queue %s %d", mutex, count)
	if f.queue == nil {
		return nil, 0, nil
	}
	return f.queue(mutex, count)
}

func (f *fakeBackend) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	f.note("scan %d count=%d held=%v contended=%v match=%v", r.Cursor, r.Count, r.Held, r.Contended, r.Match != nil)
	if err := ctx.Err(); err != nil {
		return simba.ScanPage{}, 0, &simba.UnavailableError{Engine: "redis", Err: err}
	}
	if f.scan == nil {
		return simba.ScanPage{}, 0, nil
	}
	return f.scan(r)
}

func (f *fakeBackend) Check(_ context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	f.note("check %s %d", mutex, token)
	if f.check == nil {
		return false, 0, nil
	}
	return f.check(mutex, token)
}

func (f *fakeBackend) Break(_ context.Context, mutex, reason string) (bool, simba.Seq, error) {
	f.note("break %s %q", mutex, reason)
	if f.break_ == nil {
		return false, 0, nil
	}
	return f.break_(mutex, reason)
}

func (f *fakeBackend) History(_ context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	f.note("history %s count=%d since=%d", r.Mutex, r.Count, r.Since)
	if f.history == nil {
		return nil, 0, nil
	}
	return f.history(r)
}

func (f *fakeBackend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	f.note("subscribed %s pattern=%t", channel, pattern)
	if f.subscribed != nil {
		return 0, f.subscribed(ctx, channel)
	}
	return 77, nil
}

func (f *fakeBackend) Stats() simba.Stats { return f.stats }

func (f *fakeBackend) Commit(seq simba.Seq) error {
	f.mu.Lock()
	f.committed = append(f.committed, seq)
	f.mu.Unlock()
	if f.commit == nil {
		return nil
	}
	return f.commit(seq)
}

type site struct {
	t       testing.TB
	backend *fakeBackend
	x       *Commands
	server  *resp.Server
	running sync.WaitGroup

	certificate string // the name in the certificates of later clients, "" = none
}

// newSite serves cfg until the test ends. If cfg has no Backend, it uses a fakeBackend.
func newSite(t testing.TB, cfg Config) *site {
	t.Helper()
	return newSiteOn(t, cfg, nil)
}

// newSiteOn is newSite with the broker of the server.
func newSiteOn(t testing.TB, cfg Config, broker *resp.Broker) *site {
	t.Helper()
	s := &site{t: t}
	if cfg.Backend == nil {
		s.backend = new(fakeBackend)
		cfg.Backend = s.backend
	} else {
		s.backend, _ = cfg.Backend.(*fakeBackend)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s.x = New(cfg)
	// Tests that guess passwords take longer than the default AuthTimeout.
	patient := resp.Limits{AuthTimeout: 24 * time.Hour}
	s.server = resp.NewServer(resp.Config{Limits: patient, Committer: cfg.Backend, Broker: broker, RequireAuth: s.x.RequireAuth, InUse: s.x.InUse}, s.x)
	s.x.Attach(s.server)
	t.Cleanup(s.stop)
	return s
}

// newEngine returns an engine without a disk. The engine stops at the end of the test, after
// the servers that the test creates later have stopped.
func newEngine(t testing.TB) *engine.Engine {
	return newEngineOf(t, engine.Config{HandoffWindow: time.Second, QueueGrace: 5 * time.Second})
}

func newEngineOf(t testing.TB, cfg engine.Config) *engine.Engine {
	t.Helper()
	cfg.Clock = engine.NewClock(0)
	e, err := engine.New(cfg, engine.Memory(), engine.Recovery{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// newEngineSite serves an embedded engine without a disk. Polling waiters keep their queue entries
// and reservations for the time of the test.
func newEngineSite(t testing.TB) *site { return engineSite(t, false) }

// engineSite is newEngineSite. If plain is set, it notifies contenders on channels without braces.
func engineSite(t testing.TB, plain bool) *site {
	t.Helper()
	broker := resp.NewBroker()
	e := newEngineOf(t, engine.Config{HandoffWindow: time.Hour, QueueGrace: time.Hour, Notices: Notices(broker), PlainChannels: plain})
	return newSiteOn(t, Config{Backend: e}, broker)
}

type usersFile struct {
	t    testing.TB
	path string
}

func newUsersFile(t testing.TB, lines ...string) *usersFile {
	f := &usersFile{t, filepath.Join(t.TempDir(), "users.acl")}
	f.write(lines...)
	return f
}

func (f *usersFile) write(lines ...string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *usersFile) open() *access.Accounts {
	f.t.Helper()
	users, err := access.Open(Catalog(), access.Options{Path: f.path})
	if err != nil {
		f.t.Fatal(err)
	}
	return users
}

// newUsersSite serves an engine without a disk to the users in the file.
func newUsersSite(t testing.TB, users *usersFile) *site {
	t.Helper()
	return newSite(t, Config{Backend: newEngine(t), Users: users.open()})
}

func (s *site) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), need.Hang)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.t.Errorf("Shutdown returned %v", err)
	}
	s.running.Wait()
	s.x.Close()
}

// dial connects a client through a pipe. The first client gets the id 1, the next one 2.
func (s *site) dial() *peer { return s.dialFrom("") }

// dialFrom connects a client with the address addr, ip:port. "" stands for the address of a pipe.
func (s *site) dialFrom(addr string) *peer {
	near, far := net.Pipe()
	served := make(chan struct{})
	from := far.RemoteAddr()
	if addr != "" {
		from = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
	}
	s.running.Go(func() {
		s.server.ServeConn(&signalConn{Conn: far, from: from, certificate: s.certificate, served: served})
	})
	<-served
	return newPeer(s.t, near)
}

// signalConn closes the channel served when the server first reads.
type signalConn struct {
	net.Conn
	from        net.Addr
	certificate string
	once        sync.Once
	served      chan struct{}
}

// CertificateName is the method that resp.Conn looks for.
func (c *signalConn) CertificateName() string { return c.certificate }

func (c *signalConn) RemoteAddr() net.Addr { return c.from }

func (c *signalConn) Read(b []byte) (int, error) {
	c.once.Do(func() { close(c.served) })
	return c.Conn.Read(b)
}

func (s *site) listen() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.running.Go(func() { s.server.Serve(ln) })
	return ln.Addr().String()
}

// peer is a client that returns replies as they are on the wire.
type peer struct {
	t  testing.TB
	nc net.Conn
	r  *bufio.Reader
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	p := &peer{t: t, nc: nc, r: bufio.NewReader(nc)}
	t.Cleanup(func() { nc.Close() })
	return p
}

// send sends commands. Blanks separate the words of a command. Text in double quotes is one word,
// with Go's escapes.
func (p *peer) send(commands ...string) {
	p.t.Helper()
	var b []byte
	for _, c := range commands {
		b = appendCommand(b, words(p.t, c))
	}
	if _, err := p.nc.Write(b); err != nil {
		p.t.Fatalf("send %q: %v", commands, err)
	}
}

func appendCommand(b []byte, words []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

func words(t testing.TB, command string) []string {
	t.Helper()
	var out []string
	for rest := strings.TrimLeft(command, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if rest[0] != '"' {
			word, after, _ := strings.Cut(rest, " ")
			out, rest = append(out, word), after
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("command %q: %v", command, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("command %q: %v", command, err)
		}
		out, rest = append(out, word), rest[len(quoted):]
	}
	return out
}

func (p *peer) do(command string) string {
	p.t.Helper()
	p.send(command)
	return p.reply()
}

func (p *peer) reply() string {
	p.t.Helper()
	p.nc.SetReadDeadline(time.Now().Add(time.Hour)) // a test must fail instead of hanging
	frame, err := readFrame(p.r)
	if err != nil {
		p.t.Fatalf("cannot read a reply: %v", err)
	}
	return frame
}

func (p *peer) expect(command, frame string) {
	p.t.Helper()
	if got := p.do(command); got != frame {
		p.t.Errorf("%s:\n got %q\nwant %q", command, got, frame)
	}
}

func (p *peer) expectEnd() {
	p.t.Helper()
	if frame, err := readFrame(p.r); err == nil {
		p.t.Errorf("got %q, want the end of the connection", frame)
	}
}

func (p *peer) token(mutex string) string {
	p.t.Helper()
	reply := p.do("SIMBA.OWNER " + mutex)
	_, after, ok := strings.Cut(reply, bulk("token"))
	if !ok {
		p.t.Fatalf("SIMBA.OWNER %s: no token in %q", mutex, reply)
	}
	token, _, _ := strings.Cut(after, "\r\n")
	return token
}

func (p *peer) expectOwner(mutex, owner string) {
	p.t.Helper()
	if reply := p.do("SIMBA.OWNER " + mutex); !strings.Contains(reply, bulk("owner")+bulk(owner)) {
		p.t.Errorf("SIMBA.OWNER %s: want owner %q, got %q", mutex, owner, reply)
	}
}

func readFrame(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, whole := strings.CutSuffix(line[1:], "\r\n")
	n, err := strconv.Atoi(text)
	bad := fmt.Errorf("a frame begins with %q", line)
	parts := 0
	if !whole || strings.Contains(text, "\r") || err != nil && strings.Contains(":$=*~>%", line[:1]) {
		return "", bad
	}
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil || !bytes.HasSuffix(body, []byte("\r\n")) {
			return "", bad
		}
		return line + string(body), nil
	case '*', '~', '>':
		parts = n
	case '%':
		parts = 2 * n
	case '+', '-', ':', ',', '(', '#', '_':
	default:
		return "", bad
	}
	var b bytes.Buffer
	b.WriteString(line)
	for range parts {
		part, err := readFrame(r)
		if err != nil {
			return "", err
		}
		b.WriteString(part)
	}
	return b.String(), nil
}

// backendRows yields the rows of the commands that read or change mutexes by a call of the Backend,
// with their full names. Other commands that read or change mutexes run in a transaction of the
// keyspace.
func backendRows() iter.Seq2[string, command] {
	return func(yield func(string, command) bool) {
		for _, f := range families() {
			for _, row := range f.rows {
				for _, sub := range row.subs {
					if sub.run != nil && sub.flags&(readonly|write) != 0 && !yield(row.name+"|"+sub.name, sub) {
						return
					}
				}
				if row.run != nil && row.flags&(readonly|write) != 0 && !yield(row.name, row) {
					return
				}
			}
		}
	}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func bulks(words ...string) string { return string(appendCommand(nil, words)) }

func failed(text string) string { return "-" + text + "\r\n" }

const ok = "+OK\r\n"
