package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// header begins a connection, after TLS. The member that accepts the connection answers with a byte
// that is 0, or with a text that says why it refuses.
type header struct {
	Magic    [8]byte
	Kind     byte
	Cluster  [16]byte // zero = none, only in kindHello
	From, To uint64   // raft's ids; To may be zero in kindHello, if it is unknown
}

// magic ends with the version of the protocol. The header is the same in each version.
var magic = [8]byte([]byte("SIMBA-M\x01"))

// The kinds of connections. Their numbers are part of the protocol.
const (
	kindMessages byte = iota + 1 // raft's messages but for those of kindEntries
	kindEntries                  // raft's MsgApp, in order
	kindHello                    // for members that may have no cluster yet
	kindSnapshot
	kindClient // a client that is passed on
)

const (
	prefaceTime = 3 * time.Second // for TLS and the header
	dialTime    = 2 * time.Second // the kernel repeats its first packet after 1 s
	stallTime   = 3 * time.Second // a connection for messages without progress for so long ends
	// The time between the starts of two attempts to connect. It is short, because the election after
	// the restart of a member waits for it.
	pause = 200 * time.Millisecond

	maxStrangers   = 64            // connections whose header has not arrived
	maxFrame       = 1<<30 + 1<<20 // bytes; the largest record, and what raft adds
	maxQueued      = 4096          // messages for a connection
	maxQueuedBytes = 64 << 20      // of them; a larger message is queued alone
	keptBuffer     = 1 << 20       // bytes; a larger buffer is not used again
	piece          = 64 << 10      // bytes that are written at once
)

// probes notice that the machine of a peer has vanished while its connection is idle.
var probes = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}

// refusedError is returned by dial when the other member refuses the connection. It says why.
type refusedError string

func (e refusedError) Error() string { return "the member refuses the connection: " + string(e) }

// transportConfig is the configuration of a transport. All fields but cluster, tls and dial must
// be set.
type transportConfig struct {
	self     uint64   // raft's id of this member
	cluster  [16]byte // zero = none yet, see join
	listener net.Listener
	tls      func() *tls.Config                                       // for both sides; nil = plain TCP
	dial     func(ctx context.Context, addr string) (net.Conn, error) // nil = TCP

	step        func(m *raftpb.Message) // handles a message of another member
	snapshot    func(m *raftpb.Message) // sends a MsgSnap; must not block
	unreachable func(id uint64)         // a message to a member was dropped; must not block
	// streams has the handlers of the other kinds of connections. Each call is on a goroutine of its
	// own, and must close the connection. close ends the connection, and waits for the handler.
	streams map[byte]func(conn net.Conn, h header)
	logger  *slog.Logger
}

// transport connects a member to the others. For raft's messages to a peer it keeps two connections,
// so that no heartbeat waits behind a large record. All MsgApp use the same one: raft would take one
// that overtakes another for a gap, and send the entries again. Each direction has connections of its
// own. All methods are safe for concurrent use.
type transport struct {
	cfg       transportConfig
	ctx       context.Context // ends with close
	cancel    context.CancelFunc
	running   sync.WaitGroup
	strangers chan struct{} // has an element for each connection without a header

	mu    sync.Mutex // guards what follows, and cfg.cluster
	peers map[uint64]*peer
}

type peer struct {
	addr              string
	messages, entries *sender
	cancel            context.CancelFunc
}

// newTransport starts to accept connections.
func newTransport(cfg transportConfig) *transport {
	t := &transport{cfg: cfg, peers: make(map[uint64]*peer)}
	t.strangers = make(chan struct{}, maxStrangers)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.running.Go(t.accept)
	return t
}

// close ends all connections but those of dial, and waits for the goroutines.
func (t *transport) close() {
	t.mu.Lock()
	t.cancel()
	t.mu.Unlock()
	t.cfg.listener.Close()
	t.running.Wait()
}

// join sets the id of the cluster to which this member belongs from now on.
func (t *transport) join(cluster [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.cluster = cluster
}

// setPeers sets the addresses (host:port) of the members. Messages to others are dropped.
func (t *transport) setPeers(addrs map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		if addrs[id] != p.addr {
			p.cancel()
			delete(t.peers, id)
		}
	}
	for id, addr := range addrs {
		if id == t.cfg.self || t.peers[id] != nil || t.ctx.Err() != nil {
			continue
		}
		ctx, cancel := context.WithCancel(t.ctx)
		start := func(kind byte) *sender {
			s := &sender{t: t, ctx: ctx, id: id, addr: addr, kind: kind}
			s.init()
			t.running.Go(s.run)
			return s
		}
		t.peers[id] = &peer{addr, start(kindMessages), start(kindEntries), cancel}
	}
}

// send queues a message for a member. It drops the message if the member is unknown, or the queue is
// full. It never blocks. The message must not change any more.
func (t *transport) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		t.cfg.snapshot(m)
		return
	}
	t.mu.Lock()
	p := t.peers[m.GetTo()]
	t.mu.Unlock()
	sent := false
	switch {
	case p == nil:
	case m.GetType() == raftpb.MsgApp:
		sent = p.entries.put(m)
	default:
		sent = p.messages.put(m)
	}
	if !sent {
		t.cfg.unreachable(m.GetTo())
	}
}

// sender sends the messages of one connection to a member, which it opens again when it breaks.
type sender struct {
	queue[*raftpb.Message]
	bytes int // of the messages in the queue, if there are some; guarded by queue.mu

	t    *transport
	ctx  context.Context // ends when the member is not a peer any more
	id   uint64
	addr string
	kind byte
}

// put queues a message, or returns false if there is no room.
func (s *sender) put(m *raftpb.Message) bool {
	size := len(m.GetContext())
	for _, e := range m.GetEntries() {
		size += len(e.GetData())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		s.bytes = 0
	} else if len(s.list) == maxQueued || s.bytes+size > maxQueuedBytes {
		return false
	}
	s.list = append(s.list, m)
	s.bytes += size
	poke(s.ready)
	return true
}

func (s *sender) run() {
	logger := s.t.cfg.logger.With("addr", s.addr, "for", map[byte]string{kindMessages: "messages", kindEntries: "entries"}[s.kind])
	logged := "" // the reason for the last failure
	for {
		begin := time.Now()
		conn, err := s.t.dial(s.ctx, s.addr, s.kind, s.id)
		if err == nil {
			logger.Info("connected to a member")
			begin, logged = time.Now(), ""
			err = s.serve(conn)
			s.t.cfg.unreachable(s.id) // the kernel may have had messages
		} else if len(s.take()) != 0 {
			s.t.cfg.unreachable(s.id)
		}
		if s.ctx.Err() != nil {
			return
		}
		reason := err.Error()
		if op := new(net.OpError); errors.As(err, &op) {
			reason = op.Err.Error() // without the port, which is another one each time
		}
		if reason != logged {
			logger.Warn("no connection to a member", "err", err)
			logged = reason
		}
		select {
		case <-time.After(time.Until(begin.Add(pause))):
		case <-s.ctx.Done():
			return
		}
	}
}

// serve sends messages until the connection breaks.
func (s *sender) serve(conn net.Conn) error {
	var broken error
	end := make(chan struct{})
	go func() { // notices at once when the peer's process ends
		defer close(end)
		if _, broken = conn.Read(make([]byte, 1)); broken == nil {
			broken = errors.New("the member has sent unexpected data")
		}
	}()
	defer func() { abort(conn); <-end }()
	defer context.AfterFunc(s.ctx, func() { abort(conn) })()
	progress := func() { _ = conn.SetWriteDeadline(time.Now().Add(stallTime)) }
	w := bufio.NewWriterSize(conn, piece)
	buffer := make([]byte, 4)
	for s.wait(end) {
		for _, m := range s.take() {
			frame, err := proto.MarshalOptions{}.MarshalAppend(buffer[:4], m)
			if err != nil {
				return err
			}
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
			for part := range slices.Chunk(frame, piece) {
				progress()
				if _, err := w.Write(part); err != nil {
					return err
				}
			}
			if cap(frame) <= keptBuffer {
				buffer = frame
			}
		}
		progress()
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return broken
}

// abort closes a connection. Close of a TLS connection would wait for room for a last record.
func abort(conn net.Conn) { plain(conn).Close() }

// plain returns the connection below TLS.
func plain(conn net.Conn) net.Conn {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return conn
}

// dial opens a connection of a kind to the member with the id to, and waits for its answer.
func (t *transport) dial(ctx context.Context, addr string, kind byte, to uint64) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime, KeepAliveConfig: probes}
	if kind == kindMessages || kind == kindEntries {
		dialer.Control = func(_, _ string, conn syscall.RawConn) error { return endStalled(conn, stallTime) }
	}
	connect := func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	if t.cfg.dial != nil {
		connect = func() (net.Conn, error) { return t.cfg.dial(ctx, addr) }
	}
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	t.mu.Lock()
	h := header{magic, kind, t.cfg.cluster, t.cfg.self, to}
	t.mu.Unlock()
	secured, err := t.introduce(conn, addr, h)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// introduce sends the header, and returns the connection with TLS.
func (t *transport) introduce(conn net.Conn, addr string, h header) (net.Conn, error) {
	_ = conn.SetDeadline(time.Now().Add(prefaceTime))
	if t.cfg.tls != nil {
		config := t.cfg.tls().Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
		conn = tls.Client(conn, config)
	}
	if err := binary.Write(conn, binary.BigEndian, h); err != nil {
		return nil, err
	}
	answer := make([]byte, 256)
	if _, err := io.ReadFull(conn, answer[:1]); err != nil {
		return nil, err
	}
	if answer[0] != 0 {
		n, _ := io.ReadFull(conn, answer[1:])
		return nil, refusedError(answer[:1+n])
	}
	return conn, conn.SetDeadline(time.Time{})
}

// accept accepts connections. While there are too many strangers it waits, at most for prefaceTime.
func (t *transport) accept() {
	for {
		select {
		case t.strangers <- struct{}{}:
		case <-t.ctx.Done():
			return
		}
		conn, err := t.cfg.listener.Accept()
		if err == nil {
			t.running.Go(func() { t.receive(conn) })
			continue
		}
		if t.ctx.Err() != nil {
			return
		}
		<-t.strangers
		t.cfg.logger.Warn("no connections from members", "err", err)
		time.Sleep(pause) // as when there are too many open files
	}
}

// receive serves a connection of another member.
func (t *transport) receive(conn net.Conn) {
	defer context.AfterFunc(t.ctx, func() { abort(conn) })()
	secured, h, err := t.welcome(conn)
	<-t.strangers
	if err == nil {
		if handle := t.cfg.streams[h.Kind]; handle != nil {
			handle(secured, h)
			return
		}
		err = t.read(secured, h.From)
	}
	conn.Close()
	t.cfg.logger.Debug("a connection of a member has ended", "addr", conn.RemoteAddr(), "err", err)
}

// welcome reads and answers the header of a connection, and returns the connection with TLS.
func (t *transport) welcome(conn net.Conn) (secured net.Conn, h header, err error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(probes)
	}
	_ = conn.SetDeadline(time.Now().Add(prefaceTime))
	if t.cfg.tls != nil {
		conn = tls.Server(conn, t.cfg.tls())
	}
	if err := binary.Read(conn, binary.BigEndian, &h); err != nil {
		return nil, h, err
	}
	if reason := t.refuse(h); reason != "" {
		_, _ = io.WriteString(conn, reason)
		return nil, h, errors.New(reason)
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return nil, h, err
	}
	return conn, h, conn.SetDeadline(time.Time{})
}

// refuse returns why a connection is refused, or "". The text has at most 256 bytes.
func (t *transport) refuse(h header) string {
	t.mu.Lock()
	cluster := t.cfg.cluster
	t.mu.Unlock()
	none := [16]byte{}
	hello := h.Kind == kindHello
	switch {
	case h.Magic != magic:
		return fmt.Sprintf("this member speaks version %d of the members' protocol", magic[7])
	case t.cfg.streams[h.Kind] == nil && h.Kind != kindMessages && h.Kind != kindEntries:
		return fmt.Sprintf("unknown kind of connection: %d", h.Kind)
	case hello && (h.Cluster == none || cluster == none):
	case cluster == none:
		return "this member belongs to no cluster yet"
	case h.Cluster != cluster:
		return fmt.Sprintf("this member belongs to the cluster %x, not to %x", cluster, h.Cluster)
	}
	if h.To != t.cfg.self && (!hello || h.To != 0) {
		return fmt.Sprintf("this member has the id %x, not %x", t.cfg.self, h.To)
	}
	return ""
}

// read handles the messages that arrive from a member.
func (t *transport) read(conn net.Conn, from uint64) error {
	r := bufio.NewReaderSize(conn, piece)
	var length [4]byte
	var buffer []byte
	for {
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return err
		}
		size := int(binary.BigEndian.Uint32(length[:]))
		if size > maxFrame {
			return fmt.Errorf("a message has %d bytes, allowed are %d", size, maxFrame)
		}
		frame := buffer[:0]
		for len(frame) < size { // the buffer grows only as bytes arrive
			begin := len(frame)
			frame = slices.Grow(frame, min(size-begin, max(begin, 4096)))
			frame = frame[:min(size, cap(frame))]
			if _, err := io.ReadFull(r, frame[begin:]); err != nil {
				return err
			}
		}
		m := new(raftpb.Message)
		if err := proto.Unmarshal(frame, m); err != nil {
			return err
		}
		if m.GetFrom() != from || m.GetTo() != t.cfg.self {
			return fmt.Errorf("a message is from %x to %x", m.GetFrom(), m.GetTo())
		}
		t.cfg.step(m)
		if cap(frame) <= keptBuffer {
			buffer = frame
		}
	}
}
