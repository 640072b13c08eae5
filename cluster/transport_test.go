package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/simba-resp/simba-resp/tests/certs"
)

var testCluster = [16]byte{4, 5}

// endpoint is a transport with what it has received.
type endpoint struct {
	*transport
	addr        string
	received    chan *raftpb.Message
	unreachable chan uint64
}

// listen opens a transport on addr, "" = any. change may change its configuration.
func listen(t *testing.T, id uint64, addr string, change func(*transportConfig)) *endpoint {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{addr: ln.Addr().String(), received: make(chan *raftpb.Message, 10_000), unreachable: make(chan uint64, 10_000)}
	cfg := transportConfig{
		self: id, cluster: testCluster, listener: ln,
		step:        func(m *raftpb.Message) { e.received <- m },
		unreachable: func(id uint64) { e.unreachable <- id },
		logger:      slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	e.transport = newTransport(cfg)
	t.Cleanup(e.transport.close)
	return e
}

func withTLS(t *testing.T) func(*transportConfig) {
	ca := certs.NewAuthority(t, "members")
	return func(cfg *transportConfig) {
		config := &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.Sign(t, certs.Leaf{Name: "m"}).Certificate},
			RootCAs: ca.Pool, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert,
		}
		cfg.tls = func() *tls.Config { return config }
	}
}

// preface returns the header of a connection for messages from member 2 to member 1.
func preface(t *testing.T) []byte {
	b, err := binary.Append(nil, binary.BigEndian, header{magic, kindMessages, testCluster, 2, 1})
	if err != nil {
		t.Error(err)
	}
	return b
}

func heartbeat(from, to, commit uint64) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Commit: &commit}
}

func entries(from, to, index uint64, data []byte) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Index: &index, Entries: []*raftpb.Entry{{Data: data}}}
}

func TestTransportKeepsTheOrderOfEachConnection(t *testing.T) {
	secure := withTLS(t)
	a, b := listen(t, 1, "", secure), listen(t, 2, "", secure)
	a.setPeers(map[uint64]string{1: a.addr, 2: b.addr})
	large := bytes.Repeat([]byte("simba"), 1<<20)
	const count = 1000
	for i := range uint64(count) {
		a.send(heartbeat(1, 2, i))
		data := large[:i]
		if i == count/2 {
			data = large
		}
		a.send(entries(1, 2, i, data))
	}
	var beats, apps uint64
	for beats+apps < 2*count {
		m := <-b.received
		switch {
		case m.GetType() == raftpb.MsgHeartbeat && m.GetCommit() == beats:
			beats++
		case m.GetType() == raftpb.MsgApp && m.GetIndex() == apps:
			if apps == count/2 && !bytes.Equal(m.GetEntries()[0].GetData(), large) {
				t.Error("the large record has changed")
			}
			apps++
		default:
			t.Fatalf("%v after %d heartbeats and %d of entries", m.GetType(), beats, apps)
		}
	}
}

func TestHeartbeatsDoNotWaitBehindEntries(t *testing.T) {
	stalled := make(chan struct{})
	goOn := make(chan struct{})
	var once sync.Once
	a := listen(t, 1, "", nil)
	beats := make(chan uint64, 10)
	b := listen(t, 2, "", func(cfg *transportConfig) {
		cfg.step = func(m *raftpb.Message) {
			if m.GetType() == raftpb.MsgApp {
				once.Do(func() { close(stalled) })
				<-goOn
				return
			}
			beats <- m.GetCommit()
		}
	})
	defer b.transport.close()
	defer close(goOn)
	a.setPeers(map[uint64]string{2: b.addr})
	a.send(entries(1, 2, 1, nil))
	<-stalled
	for i := range uint64(10) {
		a.send(entries(1, 2, 2, make([]byte, 8<<20))) // more than the kernel takes
		a.send(heartbeat(1, 2, i))
		if got := <-beats; got != i {
			t.Fatalf("heartbeat %d, want %d", got, i)
		}
	}
}

// An empty MsgApp that overtook one with entries would make raft send the entries again.
func TestEmptyMsgAppDoesNotOvertakeEntries(t *testing.T) {
	a, b := listen(t, 1, "", nil), listen(t, 2, "", nil)
	a.setPeers(map[uint64]string{2: b.addr})
	for i := range uint64(100) {
		m := entries(1, 2, i, make([]byte, 100_000))
		if i%2 == 1 {
			m.Entries = nil
		}
		a.send(m)
	}
	for i := range uint64(100) {
		if m := <-b.received; m.GetIndex() != i {
			t.Fatalf("index %d, want %d", m.GetIndex(), i)
		}
	}
}

func TestMessagesFlowAgainAfterAPeersRestart(t *testing.T) {
	secure := withTLS(t)
	a, b := listen(t, 1, "", secure), listen(t, 2, "", secure)
	a.setPeers(map[uint64]string{2: b.addr})
	b.setPeers(map[uint64]string{1: a.addr})
	for range 3 {
		a.send(heartbeat(1, 2, 1))
		<-b.received
		b.transport.close()
		<-a.unreachable // it noticed that without a message
		b = listen(t, 2, b.addr, secure)
		b.setPeers(map[uint64]string{1: a.addr})
		ticker := time.NewTicker(10 * time.Millisecond)
		for again := false; !again; {
			select {
			case <-ticker.C:
				a.send(entries(1, 2, 1, nil))
			case <-b.received:
				again = true
			}
		}
		ticker.Stop()
	}
}

func TestQueueHasABound(t *testing.T) {
	s := &sender{}
	s.init()
	fill := func(m *raftpb.Message) (count int) {
		for s.put(m) {
			count++
		}
		return count
	}
	if got := fill(heartbeat(1, 2, 3)); got != maxQueued {
		t.Errorf("the queue takes %d messages, want %d", got, maxQueued)
	}
	for range 2 {
		s.take()
		if got := fill(entries(1, 2, 3, make([]byte, maxQueuedBytes/8))); got != 8 {
			t.Errorf("the queue takes %d eighths of its bytes", got)
		}
	}
	s.take()
	if got := fill(entries(1, 2, 3, make([]byte, maxQueuedBytes+1))); got != 1 {
		t.Errorf("the queue takes %d messages that are larger than it, want 1", got)
	}
}

func TestDroppedMessageIsReported(t *testing.T) {
	a, b := listen(t, 1, "", nil), listen(t, 2, "", nil)
	a.send(heartbeat(1, 2, 1))
	if id := <-a.unreachable; id != 2 {
		t.Fatalf("unreachable: %d, want 2, which is unknown", id)
	}
	b.transport.close()
	a.setPeers(map[uint64]string{2: b.addr})
	a.send(heartbeat(1, 2, 1))
	<-a.unreachable // its port is closed
}

func TestSnapshotGoesToItsHook(t *testing.T) {
	var got *raftpb.Message
	a := listen(t, 1, "", func(cfg *transportConfig) { cfg.snapshot = func(m *raftpb.Message) { got = m } })
	m := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), To: proto.Uint64(2)}
	if a.send(m); got != m {
		t.Error("the hook was not called")
	}
}

func TestFormerPeerIsDisconnected(t *testing.T) {
	a, b := listen(t, 1, "", nil), listen(t, 2, "", nil)
	a.setPeers(map[uint64]string{2: b.addr})
	a.send(heartbeat(1, 2, 1))
	<-b.received
	a.setPeers(nil)
	<-a.unreachable // the end of the connection
	a.send(heartbeat(1, 2, 1))
	<-a.unreachable // unknown
}

func TestRefusal(t *testing.T) {
	const kindOther = 9
	serve := func(cfg *transportConfig) {
		greet := func(conn net.Conn, h header) {
			defer conn.Close()
			_ = binary.Write(conn, binary.BigEndian, h)
		}
		cfg.streams = map[byte]func(net.Conn, header){kindHello: greet, kindOther: greet}
	}
	a := listen(t, 1, "", serve)
	for name, test := range map[string]struct {
		cluster [16]byte
		kind    byte
		to      uint64
		want    string // "" = accepted
	}{
		"right":                    {testCluster, kindOther, 1, ""},
		"another cluster":          {[16]byte{6}, kindOther, 1, "belongs to the cluster 0405"},
		"another cluster's raft":   {[16]byte{6}, kindMessages, 1, "belongs to the cluster 0405"},
		"no cluster":               {[16]byte{}, kindOther, 1, "belongs to the cluster 0405"},
		"another id":               {testCluster, kindEntries, 3, "has the id 1, not 3"},
		"no id":                    {testCluster, kindOther, 0, "has the id 1, not 0"},
		"unknown kind":             {testCluster, 77, 1, "unknown kind of connection: 77"},
		"hello":                    {testCluster, kindHello, 1, ""},
		"hello of nobody":          {[16]byte{}, kindHello, 0, ""},
		"hello of another cluster": {[16]byte{6}, kindHello, 0, "belongs to the cluster 0405"},
		"hello to another":         {testCluster, kindHello, 3, "has the id 1, not 3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := listen(t, 2, "", func(cfg *transportConfig) { cfg.cluster = test.cluster })
			conn, err := b.dial(t.Context(), a.addr, test.kind, test.to)
			if test.want != "" {
				var refused refusedError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var got header
			if err := binary.Read(conn, binary.BigEndian, &got); err != nil {
				t.Fatal(err)
			}
			if want := (header{magic, test.kind, test.cluster, 2, test.to}); got != want {
				t.Errorf("header %v, want %v", got, want)
			}
		})
	}
}

func TestMemberWithoutAClusterAcceptsOnlyHello(t *testing.T) {
	a := listen(t, 1, "", func(cfg *transportConfig) {
		cfg.cluster = [16]byte{}
		cfg.streams = map[byte]func(net.Conn, header){kindHello: func(conn net.Conn, _ header) { conn.Close() }}
	})
	b := listen(t, 2, "", nil)
	if _, err := b.dial(t.Context(), a.addr, kindMessages, 1); err == nil || !strings.Contains(err.Error(), "no cluster yet") {
		t.Fatalf("%v, want no cluster yet", err)
	}
	conn, err := b.dial(t.Context(), a.addr, kindHello, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	a.join(testCluster)
	if conn, err = b.dial(t.Context(), a.addr, kindMessages, 1); err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestStrangersAreDisconnected(t *testing.T) {
	secure := withTLS(t)
	plain, secured := listen(t, 1, "", nil), listen(t, 1, "", secure)
	frame := func(m *raftpb.Message) string {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + string(data)
	}
	preface := string(preface(t))
	garbage := strings.Repeat("GET / HTTP/1.1\r\n", 3)[:len(preface)]
	for name, test := range map[string]struct{ addr, send, want string }{
		"garbage":               {plain.addr, garbage, "speaks version 1"},
		"another version":       {plain.addr, "SIMBA-M\x02" + preface[8:], "speaks version 1"},
		"plain to the TLS port": {secured.addr, preface, ""},
		"message of another":    {plain.addr, preface + frame(heartbeat(3, 1, 1)), ""},
		"message to another":    {plain.addr, preface + frame(heartbeat(2, 3, 1)), ""},
		"huge message":          {plain.addr, preface + "\xff\xff\xff\xff", ""},
		"no message":            {plain.addr, preface + "\x00\x00\x00\x05hallo", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", test.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(test.send)); err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(conn) // returns when the connection ends
			if !strings.Contains(string(got), test.want) {
				t.Errorf("answer %q, want %q", got, test.want)
			}
		})
	}
	if len(plain.received) != 0 {
		t.Errorf("%d messages arrived", len(plain.received))
	}
	stranger := listen(t, 2, "", withTLS(t)) // of another authority
	if _, err := stranger.dial(t.Context(), secured.addr, kindMessages, 1); err == nil {
		t.Error("a certificate of another authority is accepted")
	}
	anonymous := listen(t, 2, "", func(cfg *transportConfig) {
		secure(cfg)
		config := cfg.tls().Clone()
		config.Certificates = nil
		cfg.tls = func() *tls.Config { return config }
	})
	if _, err := anonymous.dial(t.Context(), secured.addr, kindMessages, 1); err == nil {
		t.Error("a member without a certificate is accepted")
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel only
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := listen(t, 1, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = io.ReadFull(conn, make([]byte, len(preface(t))))
		}
		cancel()
		<-t.Context().Done()
	}()
	if _, err := a.dial(ctx, silent.Addr().String(), kindMessages, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestCloseEndsStreams(t *testing.T) {
	begun := make(chan struct{})
	a := listen(t, 1, "", func(cfg *transportConfig) {
		cfg.streams = map[byte]func(net.Conn, header){kindHello: func(conn net.Conn, _ header) {
			close(begun)
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}}
	})
	b := listen(t, 2, "", nil)
	conn, err := b.dial(t.Context(), a.addr, kindHello, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-begun
	a.transport.close()
}

// pipes is a listener whose connections are pipes, for tests with fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return nil }

func TestSilentStrangersHoldUpMembersOnlyForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := pipes{make(chan net.Conn), make(chan struct{})}
		received := make(chan *raftpb.Message, 1)
		tr := newTransport(transportConfig{
			self: 1, cluster: testCluster, listener: ln, logger: slog.New(slog.DiscardHandler),
			step: func(m *raftpb.Message) { received <- m },
		})
		begin := time.Now()
		for range maxStrangers {
			theirs, ours := net.Pipe()
			defer theirs.Close()
			ln.conns <- ours
		}
		synctest.Wait()
		theirs, ours := net.Pipe()
		select {
		case ln.conns <- ours:
			t.Fatal("too many strangers")
		default:
		}
		ln.conns <- ours
		if waited := time.Since(begin); waited != prefaceTime {
			t.Errorf("waited for %v, want %v", waited, prefaceTime)
		}
		conn, err := tr.introduce(theirs, "", header{magic, kindMessages, testCluster, 2, 1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * prefaceTime) // its deadline must not outlive it
		s := &sender{ctx: t.Context()}
		s.init()
		s.put(heartbeat(2, 1, 7))
		go func() { _ = s.serve(conn) }()
		if m := <-received; m.GetCommit() != 7 {
			t.Errorf("received %v", m)
		}
		tr.close()
	})
}

func TestConnectionWithoutProgressEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		s := &sender{ctx: t.Context()}
		s.init()
		s.put(entries(1, 2, 1, make([]byte, 1<<20)))
		go func() { // slow, but steady
			for range 4 {
				time.Sleep(stallTime - 1)
				_, _ = io.ReadFull(theirs, make([]byte, piece))
			}
		}()
		begin := time.Now()
		if err := s.serve(ours); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want a write that failed", err)
		}
		if got, want := time.Since(begin), 4*(stallTime-1)+stallTime; got != want {
			t.Errorf("the connection ended after %v, want %v", got, want)
		}
	})
}
