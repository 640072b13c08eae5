package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func pageOf(t *testing.T, r *results) string {
	t.Helper()
	page, err := (&bench{results: r}).page("ext4", "a run", nil)
	must(t, err)
	return page
}

func TestThePageHasEveryAim(t *testing.T) {
	r := newResults(7)
	page := pageOf(t, r)
	for _, a := range r.aims() {
		if !strings.Contains(page, "| "+a.what+" | "+a.bound()+" |") {
			t.Errorf("the page lacks %q", a.what)
		}
	}
}

func TestThePageHasTheTimeOfOneLockAndTheRatesOfEachServer(t *testing.T) {
	r := newResults(1)
	for i, s := range subjects {
		r.add(0, key{tenureP50, s.name, 1}, float64(i)+0.25)
		r.add(0, key{tenureP99, s.name, 1}, float64(i)+0.75)
		r.add(0, key{tenures, s.name, manyClients}, float64(2000+i))
		r.add(0, key{handoffs, s.name, manyClients}, float64(1000+i))
		r.add(0, key{fairness, s.name, manyClients}, float64(i)/100)
	}
	page := pageOf(t, r)
	for i, s := range subjects {
		row := fmt.Sprintf("| %s | %s ms | %s ms | 2,0%02d/s | 1,0%02d/s | 0.%02d |",
			s.name, figure(float64(i)+0.25), figure(float64(i)+0.75), i, i, i)
		if !strings.Contains(page, row) {
			t.Errorf("the page lacks %q", row)
		}
	}
}

func TestThePageHasTheFiguresOfThreeServers(t *testing.T) {
	r := newResults(1)
	for i, s := range threes {
		r.add(0, key{tenureP50, s.name, 1}, float64(i)+0.25)
		r.add(0, key{tenureP99, s.name, 1}, float64(i)+0.75)
		r.add(0, key{tenures, s.name, manyClients}, float64(2000+i))
		r.add(0, key{handoffs, s.name, threeClients}, float64(1000+i))
		r.add(0, key{fairness, s.name, threeClients}, 0.99)
	}
	r.add(0, key{takeover, simbaThree, heldLeases}, 1.5)
	r.add(0, key{takeoverP99, simbaThree, heldLeases}, 1.75)
	r.add(0, key{handover, simbaThree, heldLeases}, 120)
	r.add(0, key{handoverLongest, simbaThree, heldLeases}, 250)
	page := pageOf(t, r)
	rows := []string{"| simba-resp ×3 | 1.50 s | 1.75 s | 120 ms | 250 ms |", "| etcd ×3 | – | – | – | – |"}
	for i, s := range threes {
		rows = append(rows, fmt.Sprintf("| %s | %d.25 ms | %d.75 ms | 2,00%d/s | 1,00%d/s | 0.99 |", s.name, i, i, i, i))
	}
	for _, row := range rows {
		if !strings.Contains(page, row) {
			t.Errorf("the page lacks %q", row)
		}
	}
}

func TestThePageHasTheTimesOfHandoffsOfThisServerOnly(t *testing.T) {
	r := newResults(1)
	for _, s := range subjects {
		r.add(0, key{handoffP50, s.name, 2}, 1.25)
		r.add(0, key{handoffP99, s.name, 2}, 3.5)
	}
	page := pageOf(t, r)
	for _, s := range subjects {
		is, want := strings.Contains(page, "| "+s.name+" | 1.25 ms | 3.50 ms |"), strings.HasPrefix(s.name, "simba-resp")
		if is != want {
			t.Errorf("the page has the handoffs of %s: %v, want %v", s.name, is, want)
		}
	}
}

func TestTheShortRunOfThePageMeasuresBothSidesOfARatio(t *testing.T) {
	match := regexp.MustCompile(`-only (\S+)`).FindStringSubmatch(pageOf(t, newResults(1)))
	if match == nil {
		t.Fatal("the page has no short run")
	}
	for _, name := range []string{always, redisAlways} {
		if !strings.Contains(name, match[1]) {
			t.Errorf("the page shows a run with -only %s, which does not measure %s", match[1], name)
		}
	}
}

func TestAFaultOfEveryRoundIsOneLineOfThePage(t *testing.T) {
	r := newResults(3)
	for range 3 {
		r.fault("etcd", errors.New("it hangs"))
	}
	r.fault("MariaDB", errors.New("it is full"))
	page := pageOf(t, r)
	for _, line := range []string{"- etcd: it hangs (3 times)\n", "- MariaDB: it is full\n"} {
		if strings.Count(page, line) != 1 {
			t.Errorf("the page has %q %d times, want once", line, strings.Count(page, line))
		}
	}
	if n := strings.Count(page, "it hangs"); n != 1 {
		t.Errorf("the page names the same fault %d times, want once", n)
	}
}

func TestThePartsOfABarAddUpToTheWhole(t *testing.T) {
	if got := pictures[2].caption([]float64{17.6, 0, 17.7}); got != "36 = 18 + 18" {
		t.Errorf("the caption of 17.6 and 17.7 is %q, want the sum of the rounded parts", got)
	}
}
