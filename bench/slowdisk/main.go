//go:build linux

// Slowdisk is simba-resp with the embedded engine and the durability `always`, on a slow disk, or
// on a disk on which no checkpoint ends. Only the benchmarks use it: simba-resp itself cannot slow
// its disk.
//
// Slowdisk connects the parts of the server like cmd/simba-resp, but has no settings, no users and
// no limits for clients. It runs until it is killed.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

var (
	dir   = flag.String("data-dir", "", "data directory")
	sync  = flag.Duration("sync", 0, "how long each sync takes at least")
	stall = flag.Bool("stall-checkpoint", false, "end no checkpoint, so that the journal fills up")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var stalled atomic.Bool
	boot := persist.MachineBoot()
	clock := engine.ClockOf(boot.Now)
	store, recovered, err := persist.Open(persist.Options{
		Dir: *dir, FS: disk{FS: vfs.Default, sync: *sync, stalled: &stalled}, Boot: boot, Now: clock.Now,
	})
	if err != nil {
		return err
	}
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: clock, HandoffWindow: time.Second, QueueGrace: 5 * time.Second, Notices: commands.Notices(broker),
	}, store, engine.Recovery(*recovered))
	if err != nil {
		return err
	}
	handler := commands.New(commands.Config{Backend: e, Logger: slog.Default()})
	server := resp.NewServer(resp.Config{
		Limits: resp.Limits{MayBeLong: handler.LongArguments}, Broker: broker, InUse: handler.InUse, RequireAuth: handler.RequireAuth,
		Committer: e, CommitWaited: handler.CommitWaited, Poll: true,
	}, handler)
	handler.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stalled.Store(*stall) // after Open, which writes a table in a new directory
	fmt.Printf("ready addr=%s\n", ln.Addr())
	return server.Serve(ln)
}
