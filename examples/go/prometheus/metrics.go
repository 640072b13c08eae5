package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simba-resp/simba-resp/client"
)

// hook returns a hook that updates metrics in reg. The metrics have no label for the mutex, since
// many mutexes would create many time series.
func hook(reg prometheus.Registerer) func(context.Context, client.Event) {
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

	failed := func(err error, without, with string) string {
		if err != nil {
			return with
		}
		return without
	}
	return func(_ context.Context, e client.Event) {
		took := e.Took.Seconds()
		switch e.Kind {
		case "Contended":
			contended.Inc()
		case "Acquired":
			acquires.WithLabelValues("acquired").Inc()
			held.Inc()
			wait.Observe(took)
		case "NotAcquired":
			acquires.WithLabelValues(failed(e.Err, "not_acquired", "error")).Inc()
		case "Released":
			held.Dec()
			tenures.WithLabelValues("released").Observe(took)
		case "Lost":
			held.Dec()
			end := "broken"
			if e.Expired {
				end = "expired"
			}
			tenures.WithLabelValues(end).Observe(took)
		case "WorkDone":
			work.WithLabelValues(failed(e.Err, "ok", "error")).Observe(took)
		}
	}
}
