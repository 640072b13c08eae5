package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// Status has the fields of INFO about the state of a server. A figure is nil if only the store
// could count it, or if the server does not send it. The tag redis is the name in INFO.
type Status struct {
	Version            string   `redis:"simba_version" json:"simba_version" doc:"version of the server"`
	Engine             string   `redis:"engine" json:"engine" doc:"embedded, redis, mysql, postgres or zookeeper"`
	Store              *bool    `json:"store_up" doc:"whether the store serves requests; null = the user may not ask for the owner of simba-resp:status"`
	StoreFaults        []string `json:"store_faults" doc:"what is wrong with the settings of the store; null = nothing"`
	Durability         string   `redis:"durability" json:"durability" doc:"always, async or memory; empty on other engines than embedded"`
	SurvivesRestart    bool     `json:"survives_restart" doc:"whether leases survive a restart of the server"`
	Uptime             *int64   `redis:"uptime_in_seconds" json:"uptime_ms" doc:"age of the process"`
	CertificateExpires *int64   `redis:"tls_cert_expires_at" json:"certificate_expires_at" doc:"end of the certificate chain; null = no TLS"`
	Clients            *int64   `redis:"connected_clients" json:"connected_clients" doc:"connections"`
	MaxClients         *int64   `redis:"maxclients" json:"maxclients" doc:"their limit"`
	ClusterLeader      string   `redis:"cluster_leader" json:"cluster_leader,omitempty" doc:"member that leads; absent without a cluster"`
	ClusterMembers     *int64   `redis:"cluster_members" json:"cluster_members,omitempty" doc:"how many members the cluster has; absent without a cluster"`
	Mutexes            *int64   `redis:"mutexes" json:"mutexes" doc:"mutexes in memory"`
	Held               *int64   `redis:"mutexes_held" json:"mutexes_held" doc:"mutexes that have an owner"`
	Blocked            *int64   `redis:"waiters_blocked" json:"waiters_blocked" doc:"waiters in WAIT"`
	Polling            *int64   `redis:"waiters_polling" json:"waiters_polling" doc:"waiters that poll"`
	Acquired           *int64   `redis:"tenures_acquired" json:"tenures_acquired" doc:"tenures since the start of the server"`
	HandedOn           *int64   `redis:"tenures_handed_on" json:"tenures_handed_on" doc:"those that began as a handoff to a waiter"`
	Released           *int64   `redis:"tenures_released" json:"tenures_released" doc:"tenures that ended by a release"`
	Expired            *int64   `redis:"tenures_expired" json:"tenures_expired" doc:"tenures whose lease expired"`
	Broken             *int64   `redis:"tenures_broken" json:"tenures_broken" doc:"tenures that were broken"`
	Memory             *int64   `redis:"used_memory" json:"used_memory_bytes" doc:"memory of the process"`
	Dataset            *int64   `redis:"used_memory_dataset" json:"used_memory_dataset_bytes" doc:"memory of mutexes, queues and keys"`
	MaxMemory          *int64   `redis:"maxmemory" json:"maxmemory_bytes" doc:"limit of used_memory_dataset_bytes; 0 = none"`
	RecoveryDelay      *int64   `redis:"recovery_delay_ms" json:"recovery_delay_ms" doc:"rest of the recovery delay"`
	LongestLease       *int64   `redis:"longest_lease_ms" json:"longest_lease_ms" doc:"longest ttl + transition that the server accepts; null = the usual limits"`
}

func statusCommand() *cobra.Command {
	cmd := clientCommand("status", "Show the state and the figures of a server", arguments(0, 0, ""),
		func(cmd *cobra.Command, c *redis.Client, _ []string) error {
			fields, err := info(cmd.Context(), c)
			if err != nil {
				return Explain(c.Options(), err)
			}
			s, err := toStatus(fields)
			if err != nil || s.Version == "" {
				return Explain(c.Options(), errors.New("the server is not simba-resp; check the URL"))
			}
			var failure error
			s.Store, failure = askStore(cmd.Context(), c)
			if asJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), s)
			} else {
				err = printStatus(cmd.OutOrStdout(), c.Options().Addr, s)
			}
			return cmp.Or(err, failure)
		})
	cmd.Long = cmd.Short + `.

The user needs the right to send INFO. The command also asks for the owner of the mutex
simba-resp:status, to find out whether the store serves requests. Exit code 69: it does not.`
	return cmd
}

const (
	// probeMutex is the mutex whose owner askStore reads. It needs no owner.
	probeMutex = "simba-resp:status"
	// probeTimeout is longer than the default of backend-timeout, so that the server can reply.
	probeTimeout = 10 * time.Second
)

// askStore reports whether the store serves a read. It returns nil if the user may not ask, and an
// error if the read failed. On the engine embedded the server is its own store.
func askStore(ctx context.Context, c *redis.Client) (up *bool, failure error) {
	_, err := owner(ctx, c.WithTimeout(probeTimeout), probeMutex)
	if refused, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(refused.Error(), "NOPERM ") {
		return nil, nil
	}
	return new(err == nil), err
}

func info(ctx context.Context, c *redis.Client, section ...string) (map[string]string, error) {
	text, err := c.Info(ctx, section...).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// toStatus decodes the fields of INFO by the tags redis.
func toStatus(fields map[string]string) (Status, error) {
	s := Status{SurvivesRestart: fields["survives_restart"] == "yes"}
	err := redis.NewMapStringStringResult(fields, nil).Scan(&s)
	if text := fields["store_faults"]; text != "" {
		s.StoreFaults = strings.Split(text, " | ")
	}
	for _, inSeconds := range []*int64{s.Uptime, s.CertificateExpires} {
		if inSeconds != nil {
			*inSeconds *= 1000
		}
	}
	return s, err
}

func printStatus(out io.Writer, addr string, s Status) error {
	show := func(n *int64, format func(int64) string) string {
		if n == nil {
			return "unknown"
		}
		return format(*n)
	}
	t := newTable(out)
	engine := s.Engine
	if s.Durability != "" {
		engine += ", durability " + s.Durability
	}
	t.row("server", fmt.Sprintf("%s, version %s", addr, s.Version))
	t.row("engine", engine)
	if s.ClusterMembers != nil {
		t.row("cluster", fmt.Sprintf("%s leads %d members", Printable(s.ClusterLeader), *s.ClusterMembers))
	}
	if s.Engine != "embedded" {
		store := "unknown: the user may not ask for the owner of " + probeMutex
		if s.Store != nil && *s.Store {
			store = "serves requests"
		} else if s.Store != nil {
			store = "does not serve requests"
		}
		t.row("store", store)
		for _, fault := range s.StoreFaults {
			t.row("store fault", fault)
		}
	}
	t.row("up for", show(s.Uptime, seconds))
	if !s.SurvivesRestart {
		t.row("restart", "leases do not survive it")
	}
	if s.RecoveryDelay != nil && *s.RecoveryDelay > 0 {
		t.row("recovering", fmt.Sprintf("new grants are delayed for %s: the recovery delay", millis(*s.RecoveryDelay)))
	}
	if s.LongestLease != nil {
		t.row("longest lease", millis(*s.LongestLease)+", half of the session timeout that ZooKeeper granted")
	}
	if s.CertificateExpires != nil {
		t.row("certificate", "expires "+clock(*s.CertificateExpires))
	}
	t.row("clients", fmt.Sprintf("%s of %s", show(s.Clients, number), show(s.MaxClients, number)))
	t.row("mutexes held", show(s.Held, number))
	t.row("waiters", fmt.Sprintf("%s blocked, %s polling", show(s.Blocked, number), show(s.Polling, number)))
	t.row("tenures", fmt.Sprintf("%s begun, %s of them by handoff", show(s.Acquired, number), show(s.HandedOn, number)))
	t.row("ended", fmt.Sprintf("%s released, %s expired, %s broken", show(s.Released, number), show(s.Expired, number), show(s.Broken, number)))
	t.row("memory", show(s.Memory, mebibytes))
	dataset := show(s.Dataset, mebibytes)
	if s.MaxMemory != nil && *s.MaxMemory > 0 {
		dataset += " of maxmemory " + mebibytes(*s.MaxMemory)
	}
	t.row("dataset", dataset)
	return t.flush()
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

// seconds formats milliseconds that are whole seconds.
func seconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
