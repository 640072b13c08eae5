package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/simba-resp/simba-resp/persist"
)

const (
	maxMessage   = 1 << 20         // bytes of a message that begins a connection
	snapshotTime = 2 * time.Minute // for the next part of a snapshot, and for its installation on disk
	backupPause  = 5 * time.Second // until a member tries again to send a snapshot while a backup runs
)

// writeMessage writes a message with its length before it.
func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
	return err
}

func readMessage(r io.Reader) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	if size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes, at most %d are allowed", size, maxMessage)
	}
	message := make([]byte, size)
	_, err := io.ReadFull(r, message)
	return message, err
}

// writeJSON writes a message that is a JSON text.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeMessage(w, text)
}

func readJSON(r io.Reader, v any) error {
	text, err := readMessage(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// sendSnapshot sends a snapshot to a member that lacks entries. The message of raft says which one,
// but not which state: it gets that of now.
func (m *Member) sendSnapshot(x *raftpb.Message) {
	err := m.trySnapshot(proto.CloneOf(x))
	if err != nil {
		m.o.Logger.Warn("could not send a snapshot to a member", "member", fmt.Sprintf("%x", x.GetTo()), "err", err)
	}
	if errors.Is(err, persist.ErrBackupRuns) {
		select { // raft tries again at once
		case <-time.After(backupPause):
		case <-m.quit:
		}
	}
	m.with(func(n *Node) { n.SnapshotSent(x.GetTo(), err) })
}

func (m *Member) trySnapshot(x *raftpb.Message) error {
	m.sending.Add(1)
	defer m.sending.Add(-1)
	i := m.file.get()
	to, ok := i.byID(x.GetTo())
	if !ok {
		return errors.New("it is no member")
	}
	ctx, cancel := context.WithCancel(m.transport.ctx)
	defer cancel()
	b, index, term, err := m.o.Replica.Snapshot()
	if err != nil {
		return err
	}
	defer b.Close()
	conn, err := m.transport.dial(ctx, m.addr(to), kindSnapshot, to.ID)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { abort(conn) })()
	i = m.file.get()
	s := x.GetSnapshot()
	s.Metadata.Index, s.Metadata.Term, s.Metadata.ConfState = &index, &term, i.confState()
	if s.Data, err = json.Marshal(identity{Changed: i.Changed, Members: i.Members}); err != nil {
		return err
	}
	message, err := proto.Marshal(x)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(snapshotTime))
	if err := writeMessage(conn, message); err != nil {
		return err
	}
	for {
		part, err := b.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(snapshotTime))
		if err := writeMessage(conn, part); err != nil {
			return err
		}
		if len(part) == 0 {
			break
		}
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// receiveSnapshot keeps a snapshot, and then gives raft the message.
func (m *Member) receiveSnapshot(conn net.Conn, h header) {
	defer conn.Close()
	if err := m.tryReceive(conn, h); err != nil {
		m.o.Logger.Warn("could not receive a snapshot", "from", conn.RemoteAddr().String(), "err", err)
	}
}

func (m *Member) tryReceive(conn net.Conn, h header) error {
	_ = conn.SetDeadline(time.Now().Add(snapshotTime))
	message, err := readMessage(conn)
	if err != nil {
		return err
	}
	x := new(raftpb.Message)
	if err := proto.Unmarshal(message, x); err != nil {
		return err
	}
	at := x.GetSnapshot().GetMetadata()
	if x.GetFrom() != h.From || x.GetTo() != h.To || at.GetIndex() == 0 {
		return errors.New("the message is not a snapshot from that member to this one")
	}
	select { // a leader of an earlier term may still send one
	case m.receiving <- struct{}{}:
		defer func() { <-m.receiving }()
	case <-m.quit:
		return net.ErrClosed
	}
	if err := m.o.Replica.ReceiveSnapshot(at.GetIndex(), at.GetTerm(), &partReader{conn: conn}); err != nil {
		return err
	}
	m.with(func(n *Node) { n.Step(x) })
	_, err = conn.Write([]byte{0})
	return err
}

// partReader reads the parts of a snapshot up to the empty one.
type partReader struct {
	conn net.Conn
	part []byte
	err  error
}

func (r *partReader) Read(b []byte) (int, error) {
	if len(r.part) == 0 && r.err == nil {
		_ = r.conn.SetDeadline(time.Now().Add(snapshotTime))
		if r.part, r.err = readMessage(r.conn); r.err == nil && len(r.part) == 0 {
			r.err = io.EOF
		}
	}
	n := copy(b, r.part)
	r.part = r.part[n:]
	if n == 0 {
		return 0, r.err
	}
	return n, nil
}

// client is a client of a member, as that member tells the leader.
type client struct{ Network, Remote, Local, CertificateName string }

func (c client) addr(text string) net.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil && c.Network == "tcp" {
		return net.TCPAddrFromAddrPort(at)
	}
	return &net.UnixAddr{Net: "unix", Name: text}
}

// forwarded is the connection of a client that another member passes on. Its addresses are those of
// the client's connection to that member.
type forwarded struct {
	net.Conn
	client client
}

func (f *forwarded) RemoteAddr() net.Addr { return f.client.addr(f.client.Remote) }
func (f *forwarded) LocalAddr() net.Addr  { return f.client.addr(f.client.Local) }

// NetConn returns the connection to the other member. See resp.Conn.
func (f *forwarded) NetConn() net.Conn { return plain(f.Conn) }

// CloseWrite ends the stream to the client.
func (f *forwarded) CloseWrite() error { return closeWrite(f.Conn) }

func (f *forwarded) Close() error { abort(f.Conn); return nil }

// CertificateName returns the common name in the client's verified certificate, "" = none.
func (f *forwarded) CertificateName() string { return f.client.CertificateName }

// forward opens a connection to the leader for a client.
func (m *Member) forward(ctx context.Context, c client) (net.Conn, error) {
	x, ok := m.leader(m.file.get())
	if !ok {
		return nil, errors.New("the cluster has no leader")
	}
	conn, err := m.transport.dial(ctx, m.addr(x), kindClient, x.ID)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(conn, c); err != nil {
		abort(conn)
		return nil, err
	}
	return conn, nil
}

// serveClient serves a client that another member passes on. It passes no client on again.
func (m *Member) serveClient(conn net.Conn, _ header) {
	f := &forwarded{Conn: conn}
	defer f.Close()
	_ = conn.SetDeadline(time.Now().Add(prefaceTime))
	switch err := readJSON(conn, &f.client); {
	case err != nil:
	case !m.Serves():
		refuse(f)
	default:
		_ = conn.SetDeadline(time.Time{})
		m.o.Serve(f)
	}
}
