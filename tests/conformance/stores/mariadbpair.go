package stores

import (
	"context"
	"database/sql"
	"fmt"
	"net"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/simba-resp/simba-resp/tests/need"
)

// MariaDBPair is a Pair of two MariaDB servers. The replica follows asynchronously, by GTID. A
// restarted server keeps its role.
type MariaDBPair struct {
	t                TB
	link             *Link
	primary, replica *Server // between Failover and Rejoin, replica does not replicate
}

var _ Pair = (*MariaDBPair)(nil)

// pairUser is the clients' user. Unlike root, it may not write to a read_only server.
const pairUser = "simba"

// pairTimeout bounds each step of a Failover or Rejoin.
const pairTimeout = need.Hang

// NewMariaDBPair starts both servers and returns when the replica follows. The arguments are for
// the mariadbd of both.
func NewMariaDBPair(t TB, args ...string) *MariaDBPair {
	t.Helper()
	p := &MariaDBPair{t: t}
	node := func(id string, readOnly bool) *Server {
		own := []string{
			"--server-id=" + id, "--log-bin=bin", "--binlog-format=ROW", "--log-slave-updates", "--slave-net-timeout=4",
			"--gtid-strict-mode=1", // replication fails if the replica has transactions of its own
		}
		return mariaDB(t, pairStart(readOnly), append(own, args...)...)
	}
	p.primary, p.replica = node("1", false), node("2", true)
	p.link = NewLink(t, p.primary.Addr)
	p.follow()
	return p
}

// pairStart returns the statements that a server of a pair executes at its start. They are not
// written to the binary log, since both servers execute them.
func pairStart(readOnly bool) []string {
	list := []string{
		"SET SESSION sql_log_bin = 0", createDatabase,
		"CREATE USER IF NOT EXISTS " + pairUser,
		"GRANT SELECT, INSERT, UPDATE, CREATE ON simba.* TO " + pairUser,
	}
	if readOnly {
		list = append(list, "SET GLOBAL read_only = ON")
	}
	return list
}

// Link implements Pair.
func (p *MariaDBPair) Link() *Link { return p.link }

// DSN returns the DSN of clients for addr, which is the Link's address or leads to the Link. The
// user has no password and may not write to a read_only server.
func (p *MariaDBPair) DSN(addr string) string { return pairUser + "@tcp(" + addr + ")/simba" }

// Primary implements Pair.
func (p *MariaDBPair) Primary() *Server { return p.primary }

// Other implements Pair.
func (p *MariaDBPair) Other() *Server { return p.replica }

// Failover implements Pair. Both servers must run, and the replica must follow.
func (p *MariaDBPair) Failover() {
	p.t.Helper()
	old, next := p.connect(p.primary), p.connect(p.replica)
	defer old.close()
	defer next.close()
	// This statement returns when no write is in progress. After it, open transactions cannot
	// commit.
	old.exec("SET GLOBAL read_only = ON")
	writeInitFile(p.t, p.primary, pairStart(true))
	next.catchUp(old.position())
	next.exec("STOP SLAVE")
	next.exec("RESET SLAVE ALL")
	writeInitFile(p.t, p.replica, pairStart(false))
	next.exec("SET GLOBAL read_only = OFF")
	p.primary, p.replica = p.replica, p.primary
	p.link.Retarget(p.primary.Addr)
}

// Rejoin implements Pair. Both servers must run.
func (p *MariaDBPair) Rejoin() {
	p.t.Helper()
	p.follow()
}

func (p *MariaDBPair) follow() {
	p.t.Helper()
	primary, replica := p.connect(p.primary), p.connect(p.replica)
	defer primary.close()
	defer replica.close()
	host, port, err := net.SplitHostPort(p.primary.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	// If the replica was the primary before, its own transactions count as replicated.
	replica.exec("SET GLOBAL gtid_slave_pos = '" + replica.position() + "'")
	replica.exec(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_PASSWORD = '',"+
		" MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1", host, port))
	replica.exec("START SLAVE")
	replica.catchUp(primary.position())
}

// administrator is a session of root on one of the servers.
type administrator struct {
	t    TB
	addr string
	db   *sql.DB
}

func (p *MariaDBPair) connect(s *Server) administrator {
	p.t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+s.Addr+")/")
	if err != nil {
		p.t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return administrator{p.t, s.Addr, db}
}

func (a administrator) close() { _ = a.db.Close() } // only an idle connection is open

func (a administrator) exec(statement string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), pairTimeout)
	defer cancel()
	if _, err := a.db.ExecContext(ctx, statement); err != nil {
		a.t.Fatalf("MariaDB at %s: %s: %v", a.addr, statement, err)
	}
}

// position returns the GTID of the last transaction in the server's binary log.
func (a administrator) position() (gtid string) {
	a.t.Helper()
	a.get(&gtid, "SELECT @@GLOBAL.gtid_binlog_pos")
	return gtid
}

// catchUp waits until a replica has executed everything up to a position.
func (a administrator) catchUp(gtid string) {
	a.t.Helper()
	var state int
	a.get(&state, fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', %d)", gtid, int(pairTimeout.Seconds())-5))
	if state != 0 {
		a.t.Fatalf("MariaDB at %s has not caught up with %s", a.addr, gtid)
	}
}

func (a administrator) get(value any, query string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), pairTimeout)
	defer cancel()
	if err := a.db.QueryRowContext(ctx, query).Scan(value); err != nil {
		a.t.Fatalf("MariaDB at %s: %s: %v", a.addr, query, err)
	}
}
