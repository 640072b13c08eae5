//go:build linux

// Slowdisk is a simba-resp on a slow disk, or on a disk on which no checkpoint ends. It has the
// embedded engine and the durability `always`. Only the benchmarks use it.
//
// It connects the parts of the server like cmd/simba-resp, but without settings, users and limits
// for clients. It runs until a signal ends it.
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
	sync  = flag.Duration("sync", 0, "shortest time of a sync")
	stall = flag.Bool("stall-checkpoint", false, "let no checkpoint end, so that the journal fills up")
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
		Committer: e,
	}, handler)
	handler.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stalled.Store(*stall) // after Open, which writes a table to a new directory
	fmt.Printf("ready addr=%s\n", ln.Addr())
	return server.Serve(ln)
}
