package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

// openSentinel opens the server that names the leader to clients of Redis Sentinel. It is a server of
// its own, with an empty engine, so that it needs no leader.
func (a *app) openSentinel() {
	e, _ := engine.New(engine.Config{Clock: engine.NewClock(0)}, engine.Memory(), engine.Recovery{}) // it has nothing to recover
	var view atomic.Pointer[commands.SentinelView]
	view.Store(&commands.SentinelView{})
	handler := commands.New(commands.Config{
		Backend: e, Users: a.cfg.users, Info: a.info(portOf(a.sentinelLn)), Sentinel: view.Load, Logger: a.log.Logger, Audit: a.log.audit,
	})
	a.sentinel = resp.NewServer(resp.Config{
		MaxClients: a.cfg.MaxClients, IdleTimeout: a.cfg.Timeout, Logger: a.log.Logger, Committer: e, RequireAuth: handler.RequireAuth,
	}, handler)
	handler.Attach(a.sentinel)
	a.handler.Beside(handler)
	quit := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() { a.followLeader(&view, quit) })
	a.undo = append(a.undo, func(context.Context) error {
		close(quit)
		following.Wait()
		handler.Close()
		e.Stop()
		return nil
	})
}

// followLeader keeps the view up to date until quit is closed, and tells subscribers of another leader. A
// leader that is not announced passes for none, since clients cannot reach it.
func (a *app) followLeader(view *atomic.Pointer[commands.SentinelView], quit <-chan struct{}) {
	all, _ := peers(a.cfg.ClusterAnnounce) // Validate has checked them
	for {
		changed := a.member.LeaderChanged()
		name, _ := a.member.Leader()
		before, now := view.Load(), &commands.SentinelView{Flags: "s_down,o_down,master", Status: "odown"}
		for _, p := range all {
			host, port, _ := net.SplitHostPort(p.Addr)
			if at := (commands.Instance{Host: host, Port: port}); p.Name == name {
				now.Leader, now.Flags, now.Status = at, "master", "ok"
			} else {
				now.Replicas = append(now.Replicas, at)
			}
		}
		if now.Leader.Host == "" { // the last one stays known
			now.Leader, now.Replicas = before.Leader, before.Replicas
		}
		view.Store(now)
		if from, to := before.Leader, now.Leader; from != to && from.Host != "" {
			a.sentinel.Broker().Publish("+switch-master", commands.MasterName+" "+from.Host+" "+from.Port+" "+to.Host+" "+to.Port)
		}
		select {
		case <-changed:
		case <-quit:
			return
		}
	}
}
