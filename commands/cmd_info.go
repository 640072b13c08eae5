package commands

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

var infoCommands = []command{
	{
		name: "info", arity: -1, flags: loading | stale, categories: catDangerous, since: "1.0.0", run: (*client).info,
		summary: "Get information and statistics about the server",
		args:    "[section [section ...]]",
	},
}

type report struct {
	strings.Builder
	x   *Commands
	c   *client
	now time.Time
}

type section struct {
	name  string // as in the heading; clients may send it in any case
	extra bool   // INFO shows it only if the client names it, or ALL
	write func(*report)
}

var sections = []section{
	{name: "Server", write: (*report).server},
	{name: "Clients", write: (*report).clients},
	{name: "Memory", write: (*report).memory},
	{name: "Persistence", write: (*report).persistence},
	{name: "Stats", write: (*report).stats},
	{name: "Replication", write: (*report).replication},
	{name: "CPU", write: (*report).cpu},
	{name: "Commandstats", extra: true, write: (*report).commandstats},
	{name: "Errorstats", write: (*report).errorstats},
	{name: "Cluster", write: (*report).cluster},
	{name: "Sentinel", write: (*report).sentinel},
	{name: "Simba", write: (*report).simba},
	{name: "Keyspace", write: (*report).keyspace},
}

func (c *client) info(args [][]byte) error {
	r := &report{x: c.x, c: c, now: time.Now()}
	for _, s := range sections {
		if !s.wanted(args[1:]) || s.name == "Sentinel" && c.x.cfg.Sentinel == nil {
			continue
		}
		if r.Len() > 0 {
			r.WriteString("\r\n")
		}
		r.WriteString("# " + s.name + "\r\n")
		s.write(r)
	}
	if c.x.cfg.Cluster != nil {
		c.conn.ReplyAfter(0) // only a leader replies
	}
	c.w.Verbatim("txt", r.String())
	return nil
}

func (s *section) wanted(names [][]byte) bool {
	if len(names) == 0 {
		return !s.extra
	}
	return slices.ContainsFunc(names, func(name []byte) bool {
		switch {
		case equalFold(name, "ALL"), equalFold(name, "EVERYTHING"):
			return true
		case equalFold(name, "DEFAULT"):
			return !s.extra
		}
		return equalFold(name, s.name)
	})
}

// line appends a field. It omits the part of the value after a line break.
func (r *report) line(name string, value any) {
	text, _, _ := strings.Cut(fmt.Sprint(value), "\n")
	r.WriteString(name + ":" + strings.TrimSuffix(text, "\r") + "\r\n")
}

func (r *report) more(fields func() []Field) {
	if fields == nil {
		return
	}
	for _, f := range fields() {
		r.line(f.Name, f.Value)
	}
}

// known appends a figure of the engine. If the figure is negative, the engine does not count it,
// and known omits it.
func (r *report) known(name string, value int64) {
	if value >= 0 {
		r.line(name, value)
	}
}

// The fields have the names that Redis tools read. INFO omits fields of Redis that have no meaning
// in this server.

func (r *report) server() {
	info := &r.x.cfg.Info
	uptime := int64(r.now.Sub(info.Started) / time.Second)
	r.line("redis_version", redisVersion)
	r.line("redis_mode", r.x.mode)
	r.line("server_name", "simba-resp")
	r.line("simba_version", info.Version)
	r.line("os", runtime.GOOS)
	r.line("arch_bits", 32<<(^uint(0)>>63))
	r.line("go_version", runtime.Version())
	r.line("go_goroutines", runtime.NumGoroutine())
	r.line("process_id", os.Getpid())
	r.line("run_id", info.RunID)
	r.line("tcp_port", info.TCPPort)
	r.more(r.x.cfg.About)
	r.line("server_time_usec", r.now.UnixMicro())
	r.line("uptime_in_seconds", uptime)
	r.line("uptime_in_days", uptime/(24*60*60))
	r.line("executable", info.Executable)
	r.line("config_file", info.ConfigFile)
}

func (r *report) clients() {
	s := r.x.server.Stats()
	r.line("connected_clients", s.Connected)
	r.line("cluster_connections", 0)
	r.line("maxclients", r.x.server.MaxClients())
	r.line("blocked_clients", s.Blocked)
	r.line("tracking_clients", 0)
	r.line("pubsub_clients", s.Subscribers)
	r.line("monitor_clients", r.x.observers.monitors.n.Load())
}

func (r *report) memory() {
	used := usedMemory()
	resident := cmp.Or(residentMemory(), used)
	r.line("used_memory", used)
	r.line("used_memory_dataset", r.x.store.dataset()) // the memory that maxmemory limits
	r.line("used_memory_rss", resident)
	limit := r.x.gate.memory.bytes.Load()
	r.line("maxmemory", limit)
	r.line("maxmemory_policy", "noeviction")
}

func (r *report) persistence() {
	r.line("loading", 0) // the server opens its port after loading
	if r.x.cfg.Info.Durability != "" {
		r.line("durability", r.x.cfg.Info.Durability)
	}
	r.line("survives_restart", yesNo(r.x.cfg.Info.Survives))
	r.more(r.x.cfg.Persistence)
}

func (r *report) stats() {
	s := r.x.server.Stats()
	broker := r.x.server.Broker()
	r.line("total_connections_received", s.ConnectionsReceived)
	r.line("total_commands_processed", r.x.commandsProcessed())
	r.line("total_net_input_bytes", s.BytesIn)
	r.line("total_net_output_bytes", s.BytesOut)
	r.line("rejected_connections", s.Rejected)
	r.line("expired_keys", r.c.stats().Expired)
	r.line("evicted_keys", 0)
	r.line("pubsub_channels", len(broker.Channels(resp.KindChannel, "")))
	r.line("pubsub_patterns", broker.PatternCount())
	r.line("pubsubshard_channels", len(broker.Channels(resp.KindShard, "")))
	r.line("pubsub_clients_cut", s.SlowCut)
	r.line("total_error_replies", r.x.observers.stats.errors.sum())
	r.line("slowlog_entries", r.x.observers.slowlog.size())
	for reason, word := range [...]string{deniedAuth: "auth", deniedCommand: "cmd", deniedKey: "key", deniedChannel: "channel", deniedContender: "contender"} {
		r.line("acl_access_denied_"+word, r.x.observers.stats.denials[reason].Load())
	}
}

func (r *report) replication() {
	r.line("role", r.x.role)
	r.line("connected_slaves", 0)
	r.line("master_replid", r.x.cfg.Info.RunID)
	r.line("master_repl_offset", 0)
}

func (r *report) cpu() {
	user, system := cpuTime()
	r.line("used_cpu_sys", fmt.Sprintf("%.6f", system.Seconds()))
	r.line("used_cpu_user", fmt.Sprintf("%.6f", user.Seconds()))
	r.line("used_cpu_cores", runtime.GOMAXPROCS(0))
}

func (r *report) commandstats() {
	for e := range r.x.table.all() {
		calls, rejected := e.tally.calls(), e.tally.rejected.Load()
		if calls == 0 && rejected == 0 {
			continue
		}
		usec := float64(e.tally.nanos.Load()) / 1000
		r.line("cmdstat_"+e.full, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			calls, int64(usec), usec/float64(max(calls, 1)), rejected, e.tally.failed.Load()))
	}
}

func (r *report) errorstats() {
	codes := r.x.observers.stats.errors.byCode()
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		r.line("errorstat_"+code, fmt.Sprintf("count=%d", codes[code]))
	}
}

func (r *report) cluster() {
	r.line("cluster_enabled", 0) // of Redis Cluster
	if r.x.cfg.Cluster == nil {
		return
	}
	state, members := r.x.cfg.Cluster.State()
	for pair := range slices.Chunk(state, 2) {
		r.line(fmt.Sprint("cluster_", pair[0]), pair[1])
	}
	r.line("cluster_members", len(members))
	for i, m := range members {
		r.line(fmt.Sprint("cluster_member", i), fmt.Sprintf("name=%s,addr=%s,state=%s,reached=%d,lag=%d", m[1], m[3], m[5], m[7], m[9]))
	}
}

func (r *report) sentinel() {
	v := r.x.cfg.Sentinel()
	r.line("sentinel_masters", 1)
	r.line("master0", fmt.Sprintf("name=%s,status=%s,address=%s:%s,slaves=%d,sentinels=1", MasterName, v.Status, v.Leader.Host, v.Leader.Port, len(v.Replicas)))
}

func (r *report) simba() {
	s := r.c.stats()
	r.line("engine", r.x.cfg.Info.Engine)
	r.known("mutexes", s.Mutexes)
	r.known("mutexes_held", s.Held)
	r.line("waiters_blocked", s.Blocked)
	r.known("waiters_polling", s.Polling)
	r.line("sessions", r.x.observers.stats.sessions.Load())
	r.line("tenures_acquired", s.Acquired)
	r.line("tenures_handed_on", s.Handoffs)
	r.line("tenures_released", s.Released)
	r.line("tenures_expired", s.Expired)
	r.line("tenures_broken", s.Broken)
	r.line("leases_renewed", s.Renewed)
	r.line("guards_lost", r.x.observers.stats.guards[simba.StatusLost].Load())
	r.line("last_token", s.Token)
	r.line("last_seq", uint64(s.Seq))
	r.line("recovery_delay_ms", s.RecoveryDelay.Milliseconds())
	if r.x.cfg.LongestLease != nil {
		r.line("longest_lease_ms", r.x.cfg.LongestLease().Milliseconds())
	}
}

func (r *report) keyspace() {
	if held := r.c.stats().Held; held > 0 {
		r.line("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", held, held))
	}
}

// usedMemory returns the memory that Go uses: heap with garbage, stacks, runtime. It does not
// include free memory.
func usedMemory() uint64 {
	samples := [...]metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples[:])
	used := samples[0].Value.Uint64()
	for _, s := range samples[1:] {
		used -= s.Value.Uint64()
	}
	return used
}

// residentMemory returns the memory in RAM, 0 if it is unknown. It is the second number in
// /proc/self/statm, in pages.
func residentMemory() uint64 {
	text, _ := os.ReadFile("/proc/self/statm") // does not exist on every system
	var size, resident uint64
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * uint64(os.Getpagesize())
}

func cpuTime() (user, system time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

func (x *Commands) commandsProcessed() (n uint64) {
	for e := range x.table.all() {
		n += e.tally.calls()
	}
	return n
}
