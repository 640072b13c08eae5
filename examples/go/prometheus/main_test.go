package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/simbatest"
)

func TestMetricsCountAnHourOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		_, err := rdb.Do(t.Context(), "SIMBA.ACQUIRE", *mutex, "another", (10 * time.Second).Milliseconds()).Result()
		if err != nil {
			t.Fatal(err)
		}
		*work = 5 * time.Second
		reg := prometheus.NewRegistry()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		// The work begins every 5 s, so this is in the middle of it.
		breakAfter := time.AfterFunc(30*time.Minute+2*time.Second, func() {
			if err := rdb.Do(context.Background(), "SIMBA.BREAK", *mutex).Err(); err != nil {
				t.Error(err)
			}
		})
		defer breakAfter.Stop()
		if err := run(ctx, redis.NewClient(rdb.Options()), reg); err != nil {
			t.Error(err)
		}

		w := httptest.NewRecorder()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{
			"simba_client_contended_total 1\n",
			`simba_client_acquire_wait_seconds_bucket{le="0.001"} `,
			`simba_client_hold_seconds_count{end="broken"} 1` + "\n",
			`simba_client_work_seconds_bucket{result="ok",le="4.096"} 0` + "\n",
			"simba_client_mutexes_held 0\n",
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("the metrics do not contain %q:\n%s", want, w.Body)
			}
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) != 0 {
			t.Errorf("promlint finds the problems %v and returns the error %v, want none", problems, err)
		}
	})
}
