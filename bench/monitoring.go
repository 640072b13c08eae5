package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// monitoringLimit is the largest good ratio: processor time per tenure with metrics, divided by
// that without.
const monitoringLimit = 1.05

// scrapeInterval is far shorter than usual, so that the cost is visible.
const scrapeInterval = time.Second

// monitoring measures the processor time of a server with scraped metrics, and of one without HTTP.
// Loads run on them in turn. It reports the median ratio for each durability.
func (b *bench) monitoring(tb *testbed, pairs int) {
	for _, durability := range []string{"memory", "always"} {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(tb)))
		with := simba(tb, 0, "--durability", durability, "--http-addr", addr)
		without := simba(tb, 0, "--durability", durability)
		var ratios []float64
		for pair := range pairs {
			used := make(map[*site]float64)
			for _, s := range orderOf(pair, []*site{with, without}) {
				flushDisk()
				stop := func() error { return nil }
				if s == with {
					stop = scrape("http://" + addr + "/metrics")
				}
				f, err := s.run(load{clients: manyClients}, *during)
				tb.must(stop())
				tb.must(err)
				used[s] = f.perTenure(f.spent.server)
			}
			ratios = append(ratios, used[with]/used[without])
			b.say("%-8s pair %2d of %d: a tenure takes %6.2f µs of the server's processor time with metrics, %6.2f µs without; ratio %.3f",
				durability, pair+1, pairs, used[with], used[without], used[with]/used[without])
		}
		b.say("%-8s median ratio %.3f, at most %.2f is the aim", durability, median(ratios), monitoringLimit)
		if median(ratios) > monitoringLimit {
			tb.Errorf("with durability %s, metrics multiply the processor time by %.3f, want at most %.2f", durability, median(ratios), monitoringLimit)
		}
	}
}

// scrape reads the metrics at once, and then at each interval, until the caller calls stop. stop
// returns the first error.
func scrape(url string) (stop func() error) {
	var scraping sync.WaitGroup
	var failure error
	end := make(chan struct{})
	scraping.Go(func() {
		tick := time.NewTicker(scrapeInterval)
		defer tick.Stop()
		for failure == nil {
			failure = read(url)
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	})
	return func() error {
		close(end)
		scraping.Wait()
		return failure
	}
}

func read(url string) error {
	reply, err := http.Get(url)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, reply.Status)
	}
	return nil
}
