package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simba-resp/simba-resp/client"
)

// hooks returns hooks that update metrics in reg. The metrics have no label for the mutex, since
// many mutexes would create many time series.
func hooks(reg prometheus.Registerer) client.Hooks {
	acquires := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "simba_client_acquires_total", Help: "Attempts to acquire a mutex, by how they ended.",
	}, []string{"result"})
	contended := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "simba_client_contended_total", Help: "Attempts that found the mutex owned by another contender.",
	})
	held := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "simba_client_mutexes_held", Help: "Mutexes that this process owns.",
	})
	buckets := prometheus.ExponentialBuckets(0.001, 4, 12) // 1 ms to 70 min
	wait := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "simba_client_acquire_wait_seconds", Help: "Time from the first request to the tenure.", Buckets: buckets,
	})
	tenures := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "simba_client_hold_seconds", Help: "Length of tenures, by how they ended.", Buckets: buckets,
	}, []string{"end"})
	work := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "simba_client_work_seconds", Help: "Time that work under a mutex took, by its result.", Buckets: buckets,
	}, []string{"result"})
	reg.MustRegister(acquires, contended, held, wait, tenures, work)

	return client.Hooks{
		Contended: func(context.Context, client.HookEvent) { contended.Inc() },
		Acquired: func(_ context.Context, e client.HookEvent) {
			acquires.WithLabelValues("acquired").Inc()
			held.Inc()
			wait.Observe(e.Took.Seconds())
		},
		NotAcquired: func(_ context.Context, e client.HookEvent) {
			result := "not_acquired"
			if e.Err != nil {
				result = "error"
			}
			acquires.WithLabelValues(result).Inc()
		},
		Released: func(_ context.Context, e client.HookEvent) {
			held.Dec()
			tenures.WithLabelValues("released").Observe(e.Took.Seconds())
		},
		Lost: func(_ context.Context, e client.HookEvent) {
			held.Dec()
			end := "broken"
			if e.Expired {
				end = "expired"
			}
			tenures.WithLabelValues(end).Observe(e.Took.Seconds())
		},
		WorkDone: func(_ context.Context, e client.HookEvent) {
			result := "ok"
			if e.Err != nil {
				result = "error"
			}
			work.WithLabelValues(result).Observe(e.Took.Seconds())
		},
	}
}
