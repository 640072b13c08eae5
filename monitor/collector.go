package monitor

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

// Sources are the parts of the server whose counters a scrape reads. INFO shows the same counters.
// A nil function means that the server has no such part.
type Sources struct {
	Build              Build
	Backend            simba.Backend // if the engine uses a store, the result of Timed.Probes
	Server             *resp.Server
	Commands           *commands.Commands
	Journal            func() persist.Stats
	Requests           func() RequestStats
	CertificatesExpire func() map[string]time.Time // by setting
	Faults             func() []proxy.Fault        // of the store's settings
	DroppedLines       func() (server, audit uint64)
	Cluster            func() Cluster
	Recovery           time.Duration // how long the server took to load the leases at its start
	Mutexes            []string      // globs of the mutexes that have series of their own
}

// Cluster is the state of a cluster, as one of its members knows it.
type Cluster struct {
	HasLeader       bool
	Serves          bool // this member leads
	Term, Committed uint64
	Members         []Member // empty on a member that does not lead
}

// Member is a member of a cluster, as the leader knows it.
type Member struct {
	Name                 string
	Reached, UsersDiffer bool
	Lag                  uint64 // records
}

// cluster returns the state of the cluster. A single server leads itself.
func (s *Sources) cluster() Cluster {
	if s.Cluster == nil {
		return Cluster{HasLeader: true, Serves: true}
	}
	return s.Cluster()
}

// Build describes the server. It is constant while the server runs.
type Build struct {
	Version, GoVersion, Engine string
	Durability                 string // the setting durability; "" = the store decides
}

// reading has the figures that one scrape has read.
type reading struct {
	*Sources
	engine   simba.Stats
	server   resp.Stats
	commands commands.Stats
	journal  persist.Stats
	requests RequestStats
	cluster  Cluster
	up       bool
	mutexes  mutexes
}

// collector reads the sources at each scrape. It is a prometheus.Collector.
type collector struct {
	sources *Sources
	prober  *prober
	descs   []*prometheus.Desc // one for each row of table
}

func newCollector(s *Sources, p *prober) *collector {
	c := &collector{sources: s, prober: p}
	for _, r := range table {
		c.descs = append(c.descs, prometheus.NewDesc(r.Name, r.Help, r.Labels, nil))
	}
	return c
}

// maxScrapes bounds the scrapes that run at the same time.
const maxScrapes = 4

// handler returns the handler of /metrics.
func handler(s *Sources, p *prober, log *slog.Logger) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	err := errors.Join(
		registry.Register(newCollector(s, p)),
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: maxScrapes,
	}), err
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	s := c.sources
	r := &reading{
		Sources: s, engine: s.Backend.Stats(), server: s.Server.Stats(), commands: s.Commands.Stats(),
		cluster: s.cluster(), up: c.prober.check(ctx) == nil,
	}
	if s.Journal != nil {
		r.journal = s.Journal()
	}
	if s.Requests != nil {
		r.requests = s.Requests()
	}
	if r.up {
		r.mutexes = readMutexes(ctx, s.Backend, s.Mutexes)
	}
	for i, row := range table {
		if has[row.Where](r) {
			row.collect(r, &sink{ch, c.descs[i], row.Kind})
		}
	}
}

// sink emits the series of one metric. It panics if the labels are not those of the metric, or not
// UTF-8.
type sink struct {
	ch   chan<- prometheus.Metric
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (s *sink) value(v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
}

// known emits a figure of the engine. A negative value means that the engine does not count it.
func (s *sink) known(v int64, labels ...string) {
	if v >= 0 {
		s.value(float64(v), labels...)
	}
}

// members emits a figure of each member of the cluster.
func (s *sink) members(r *reading, figure func(Member) float64) {
	for _, m := range r.cluster.Members {
		s.value(figure(m), m.Name)
	}
}

// durations emits a histogram in seconds.
func (s *sink) durations(d *simba.Durations, b buckets, labels ...string) {
	upTo := make(map[float64]uint64)
	var sum uint64
	for i, n := range d.Buckets {
		sum += n
		if i >= b.first && i <= b.last && (i-b.first)%b.step == 0 {
			upTo[math.Ldexp(1, i)/1e6] = sum
		}
	}
	s.ch <- prometheus.MustNewConstHistogram(s.desc, sum, float64(d.Micros)/1e6, upTo, labels...)
}

// sizes emits a histogram of numbers. total is the sum of these numbers. counts[i] is how many
// numbers are at most 2^i and larger than 2^(i-1). The last entry counts all larger numbers.
func (s *sink) sizes(counts []int64, total float64) {
	upTo := make(map[float64]uint64)
	var sum uint64
	for i, n := range counts {
		sum += uint64(n)
		if i < len(counts)-1 {
			upTo[math.Ldexp(1, i)] = sum
		}
	}
	s.ch <- prometheus.MustNewConstHistogram(s.desc, sum, total, upTo)
}
