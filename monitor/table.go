package monitor

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simba-resp/simba-resp/commands"
)

// Metric describes a metric of this server. The page docs/reference/metrics.md is generated from
// the descriptions.
type Metric struct {
	Name   string
	Kind   prometheus.ValueType // for a histogram, prometheus.UntypedValue
	Labels []string
	Where  string // which servers have the metric; "" = all
	Help   string
}

// Type returns "gauge", "counter" or "histogram".
func (m Metric) Type() string {
	switch m.Kind {
	case prometheus.GaugeValue:
		return "gauge"
	case prometheus.CounterValue:
		return "counter"
	default:
		return "histogram"
	}
}

// The kinds of metrics.
const (
	gauge     = prometheus.GaugeValue
	counter   = prometheus.CounterValue
	histogram = prometheus.UntypedValue
)

// Which servers have a metric.
const (
	onEmbedded   = "`embedded`"
	onDisk       = "`embedded` with a disk"
	onStore      = "other engines"
	withTLS      = "with TLS files"
	inCluster    = "with `cluster`"
	onLeader     = "leader with `cluster`"
	withPatterns = "with `metrics-mutexes`"
)

// has says for each Where whether this server has its metrics.
var has = map[string]func(*reading) bool{
	"":           func(*reading) bool { return true },
	onEmbedded:   func(r *reading) bool { return r.engine.Mutexes >= 0 },
	onDisk:       func(r *reading) bool { return r.Journal != nil },
	onStore:      func(r *reading) bool { return r.Requests != nil },
	withTLS:      func(r *reading) bool { return r.CertificatesExpire != nil },
	inCluster:    func(r *reading) bool { return r.Cluster != nil },
	onLeader:     func(r *reading) bool { return r.Cluster != nil && r.cluster.Serves },
	withPatterns: func(r *reading) bool { return len(r.Mutexes) > 0 },
}

// row is a metric and the function that reads it.
type row struct {
	Metric
	collect func(*reading, *sink)
}

// Metrics returns the metrics of this server. Those of Go and of the process are not included.
func Metrics() (all []Metric) {
	for _, r := range table {
		all = append(all, r.Metric)
	}
	return all
}

// table has all metrics, in the order of the page.
var table = []row{
	{Metric{"simba_build_info", gauge, []string{"version", "go_version", "engine", "durability"}, "", "Always 1; the labels describe the server. Durability is empty on a store."},
		func(r *reading, s *sink) {
			s.value(1, r.Build.Version, r.Build.GoVersion, r.Build.Engine, r.Build.Durability)
		}},
	{Metric{"simba_store_up", gauge, []string{"engine"}, "", "Whether the store, or the disk of embedded, answered this scrape: 1 or 0."},
		func(r *reading, s *sink) { s.value(boolean(r.up), r.Build.Engine) }},
	{Metric{"simba_store_request_duration_seconds", histogram, []string{"engine"}, onStore, "Requests to the store, in seconds, without waits for a mutex."},
		func(r *reading, s *sink) { s.durations(&r.requests.Durations, requestBuckets, r.Build.Engine) }},
	{Metric{"simba_store_request_failures_total", counter, []string{"engine"}, onStore, "Requests that the store did not answer in time, or refused because of a fault that an operator must repair."},
		func(r *reading, s *sink) { s.value(float64(r.requests.Failed), r.Build.Engine) }},
	{Metric{"simba_store_fault", gauge, []string{"engine", "setting"}, onStore, "Always 1: this setting of the store breaks or weakens a promise. Other settings have no series."},
		func(r *reading, s *sink) {
			settings := make(map[string]bool) // several nodes may have the same fault
			for _, f := range r.Faults() {
				settings[f.Setting] = true
			}
			for setting := range settings {
				s.value(1, r.Build.Engine, setting)
			}
		}},
	{Metric{"simba_cluster_leader", gauge, nil, inCluster, "Whether this member leads: 1 or 0. The sum over all members is 1, except during an election."},
		func(r *reading, s *sink) { s.value(boolean(r.cluster.Serves)) }},
	{Metric{"simba_cluster_term", gauge, nil, inCluster, "The term of the cluster, which grows with each election."},
		func(r *reading, s *sink) { s.value(float64(r.cluster.Term)) }},
	{Metric{"simba_cluster_committed_index", gauge, nil, inCluster, "Index of the last record that this member knows to be on a majority."},
		func(r *reading, s *sink) { s.value(float64(r.cluster.Committed)) }},
	{Metric{"simba_cluster_member_reached", gauge, []string{"member"}, onLeader, "Whether a member has answered the leader within the election timeout: 1 or 0."},
		func(r *reading, s *sink) { s.members(r, func(m Member) float64 { return boolean(m.Reached) }) }},
	{Metric{"simba_cluster_member_lag_records", gauge, []string{"member"}, onLeader, "Committed records that a member may lack."},
		func(r *reading, s *sink) { s.members(r, func(m Member) float64 { return float64(m.Lag) }) }},
	{Metric{"simba_cluster_member_users_differ", gauge, []string{"member"}, onLeader, "Whether a member has other users, passwords or rights than the leader: 1 or 0."},
		func(r *reading, s *sink) { s.members(r, func(m Member) float64 { return boolean(m.UsersDiffer) }) }},
	{Metric{"simba_recovery_delay_seconds", gauge, nil, "", "Time left of the recovery delay. While it is above 0, no new tenure begins."},
		func(r *reading, s *sink) { s.value(r.engine.RecoveryDelay.Seconds()) }},
	{Metric{"simba_recovery_duration_seconds", gauge, nil, onEmbedded, "How long the server took to load the leases when it started."},
		func(r *reading, s *sink) { s.value(r.Recovery.Seconds()) }},
	{Metric{"simba_tls_certificate_expiry_timestamp_seconds", gauge, []string{"setting"}, withTLS, "When a certificate expires, in Unix seconds, by setting: the first end in a chain, the last end of authorities."},
		func(r *reading, s *sink) {
			for setting, at := range r.CertificatesExpire() {
				s.value(float64(at.Unix()), setting)
			}
		}},
	{Metric{"simba_log_lines_dropped_total", counter, []string{"log"}, "", "Lines that were lost because the log's reader did not keep up, by log: server or audit."},
		func(r *reading, s *sink) {
			server, audit := r.DroppedLines()
			s.value(float64(server), "server")
			s.value(float64(audit), "audit")
		}},

	{Metric{"simba_mutexes", gauge, nil, onEmbedded, "Mutexes in memory: with an owner, a queue, a reservation, or contenders without a queue."},
		func(r *reading, s *sink) { s.value(float64(r.engine.Mutexes)) }},
	{Metric{"simba_mutexes_held", gauge, nil, onEmbedded, "Mutexes with an owner."},
		func(r *reading, s *sink) { s.value(float64(r.engine.Held)) }},
	{Metric{"simba_waiters", gauge, []string{"kind"}, "", "Waiters of this server by kind: blocked or polling. Some stores do not count polling waiters."},
		func(r *reading, s *sink) {
			s.known(r.engine.Blocked, "blocked")
			s.known(r.engine.Polling, "polling")
		}},
	{Metric{"simba_sessions", gauge, nil, "", "Connections that have bound a lease by SESSION and have not released it."},
		func(r *reading, s *sink) { s.value(float64(r.commands.Sessions)) }},
	{Metric{"simba_tenures_begun_total", counter, nil, "", "Tenures that began."},
		func(r *reading, s *sink) { s.value(float64(r.engine.Acquired)) }},
	{Metric{"simba_tenures_total", counter, []string{"end"}, "", "Tenures that ended, by how they ended: released, expired or broken."},
		func(r *reading, s *sink) {
			s.value(float64(r.engine.Released), "released")
			s.value(float64(r.engine.Expired), "expired")
			s.value(float64(r.engine.Broken), "broken")
		}},
	{Metric{"simba_handoffs_total", counter, nil, "", "Tenures that began by a handoff to a blocked waiter."},
		func(r *reading, s *sink) { s.value(float64(r.engine.Handoffs)) }},
	{Metric{"simba_renewals_total", counter, nil, "", "Renewals of leases, by any command."},
		func(r *reading, s *sink) { s.value(float64(r.engine.Renewed)) }},
	{Metric{"simba_acquires_total", counter, []string{"result"}, "", "Requests of SIMBA.ACQUIRE by result: acquired, renewed, queued, busy, timeout or error. A request that waits VIA a waiter counts when its wait ends."},
		func(r *reading, s *sink) { s.counts(r.commands.Acquires) }},
	{Metric{"simba_guards_total", counter, []string{"result"}, "", "Requests of SIMBA.GUARD by result: renewed, lost or error."},
		func(r *reading, s *sink) { s.counts(r.commands.Guards) }},
	{Metric{"simba_acquire_wait_seconds", histogram, nil, "", "Time from SIMBA.ACQUIRE with WAIT to its grant, in seconds. If the mutex was free, the time of the commit is not included."},
		func(r *reading, s *sink) { s.durations(&r.commands.Waits, waitBuckets) }},
	{Metric{"simba_hold_seconds", histogram, nil, "", "Lengths of tenures that ended, in seconds by the wall clock. On a store, only tenures whose beginning and end this server saw."},
		func(r *reading, s *sink) { s.durations(&r.engine.TenureLengths, waitBuckets) }},
	{Metric{"simba_mutex_held", gauge, []string{"mutex"}, withPatterns, "Whether the mutex has an owner: 1 or 0. A mutex without owner and waiters has no series."},
		func(r *reading, s *sink) {
			for _, m := range r.mutexes.list {
				s.value(boolean(m.held), label(m.name))
			}
		}},
	{Metric{"simba_mutex_waiters", gauge, []string{"mutex"}, withPatterns, "Waiters of the mutex."},
		func(r *reading, s *sink) {
			for _, m := range r.mutexes.list {
				s.value(float64(m.waiters), label(m.name))
			}
		}},
	{Metric{"simba_mutex_series_complete", gauge, nil, withPatterns, "Whether all mutexes of metrics-mutexes have series: 0 if there are more than 200, or if the server could not read them all."},
		func(r *reading, s *sink) { s.value(boolean(r.mutexes.complete)) }},

	{Metric{"simba_dataset_bytes", gauge, nil, onEmbedded, "Memory of mutexes, queues and keys, which maxmemory limits."},
		func(r *reading, s *sink) { s.value(float64(r.commands.Dataset)) }},
	{Metric{"simba_dataset_limit_bytes", gauge, nil, onEmbedded, "The setting maxmemory; 0 = no limit."},
		func(r *reading, s *sink) { s.value(float64(r.commands.MaxMemory)) }},
	{Metric{"simba_journal_sync_seconds", histogram, nil, onDisk, "Writes to the journal with their fsync, in seconds."},
		func(r *reading, s *sink) { s.durations(&r.journal.Syncs, requestBuckets) }},
	{Metric{"simba_journal_group_changes", histogram, nil, onDisk, "Changes that shared one write and fsync."},
		func(r *reading, s *sink) { s.sizes(r.journal.Groups[:], float64(r.journal.Changes)) }},
	{Metric{"simba_journal_bytes_total", counter, nil, onDisk, "Bytes written to the journal."},
		func(r *reading, s *sink) { s.value(float64(r.journal.Bytes)) }},

	{Metric{"simba_connections", gauge, nil, "", "Connections of clients."},
		func(r *reading, s *sink) { s.value(float64(r.server.Connected)) }},
	{Metric{"simba_connections_limit", gauge, nil, "", "The setting maxclients."},
		func(r *reading, s *sink) { s.value(float64(r.Server.MaxClients())) }},
	{Metric{"simba_connections_blocked", gauge, nil, "", "Connections that a command blocks."},
		func(r *reading, s *sink) { s.value(float64(r.server.Blocked)) }},
	{Metric{"simba_connections_subscribed", gauge, nil, "", "Connections with subscriptions."},
		func(r *reading, s *sink) { s.value(float64(r.server.Subscribers)) }},
	{Metric{"simba_connections_accepted_total", counter, nil, "", "Connections that were accepted, including rejected ones."},
		func(r *reading, s *sink) { s.value(float64(r.server.ConnectionsReceived)) }},
	{Metric{"simba_connections_rejected_total", counter, nil, "", "Connections that were rejected, since the limit was reached."},
		func(r *reading, s *sink) { s.value(float64(r.server.Rejected)) }},
	{Metric{"simba_subscribers_disconnected_total", counter, nil, "", "Subscribers that were disconnected because they did not read."},
		func(r *reading, s *sink) { s.value(float64(r.server.SlowCut)) }},
	{Metric{"simba_received_bytes_total", counter, nil, "", "Bytes from clients."},
		func(r *reading, s *sink) { s.value(float64(r.server.BytesIn)) }},
	{Metric{"simba_sent_bytes_total", counter, nil, "", "Bytes to clients."},
		func(r *reading, s *sink) { s.value(float64(r.server.BytesOut)) }},

	{Metric{"simba_commands_total", counter, []string{"command", "result"}, "", "Commands by result: ok, failed with an error, or rejected before they ran. A command has no series until a client has sent it."},
		func(r *reading, s *sink) {
			for _, c := range r.commands.Commands {
				s.value(float64(c.Succeeded), c.Name, "ok")
				s.value(float64(c.Failed), c.Name, "failed")
				s.value(float64(c.Rejected), c.Name, "rejected")
			}
		}},
	{Metric{"simba_command_duration_seconds", histogram, []string{"command"}, "", "Run times of commands, in seconds, without the time blocked in WAIT."},
		func(r *reading, s *sink) {
			for i := range r.commands.Commands {
				c := &r.commands.Commands[i]
				s.durations(&c.Calls, commandBuckets, c.Name)
			}
		}},
	{Metric{"simba_error_replies_total", counter, []string{"code"}, "", "Error replies by code."},
		func(r *reading, s *sink) { s.counts(r.commands.Errors) }},
	{Metric{"simba_denials_total", counter, []string{"reason"}, "", "Wrong passwords (auth) and missing rights: command, key, channel or contender."},
		func(r *reading, s *sink) { s.counts(r.commands.Denials) }},
}

// buckets selects the buckets of a simba.Durations that a histogram shows: every step-th from first
// to last. Bucket i ends at 2^i microseconds.
type buckets struct{ first, last, step int }

var (
	commandBuckets = buckets{4, 24, 2}  // 16 µs to 17 s
	requestBuckets = buckets{6, 24, 1}  // 64 µs to 17 s
	waitBuckets    = buckets{10, 36, 2} // 1 ms to 19 h
)

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// label returns a mutex name as a label. It escapes control characters, invalid UTF-8, quotes and
// backslashes as in Go. So no two names have the same label.
func label(name string) string {
	quoted := fmt.Sprintf("%q", name)
	return strings.TrimSuffix(strings.TrimPrefix(quoted, `"`), `"`)
}

// counts emits one series for each count. Names are escaped, because scripts may choose the codes
// of errors.
func (s *sink) counts(all []commands.Count) {
	for _, c := range all {
		s.value(float64(c.N), label(c.Name))
	}
}
