package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// contended starts a server on which alice owns job, and bob and carol wait for it.
func contended(t *testing.T, engine string) *simbatest.Server {
	t.Helper()
	s := simbatest.StartOn(t, engine)
	c := simbatest.GoRedis(t, s)
	for _, contender := range []string{"alice", "bob", "carol"} {
		simbatest.Acquire(t, c, "job", contender, 600_000, "TRANSITION", 60_000)
	}
	return s
}

func onEveryEngine(t *testing.T, test func(*testing.T, string)) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}

func TestCommandsShowOwnerQueueAndHistory(t *testing.T) {
	simbatest.Binary(t) // built by the test's own goroutine
	onEveryEngine(t, func(t *testing.T, engine string) {
		s := contended(t, engine)
		record := simbatest.DoRecord(t, simbatest.Conn(t, s), "SIMBA.OWNER", "job")
		token := fmt.Sprint(record["token"])

		for _, want := range []string{"owner ", " alice\n", "token ", token + "\n", "waiters     2\n"} {
			if out := must(t, url(s), "owner", "job"); !strings.Contains(out, want) {
				t.Errorf("owner prints\n%s\nwithout %q", out, want)
			}
		}
		o := object(t, must(t, url(s), "owner", "--json", "job"))
		if o["held"] != true || o["owner"] != "alice" || fmt.Sprintf("%.0f", o["token"]) != token || o["transition"].(float64) <= o["ttl"].(float64) {
			t.Errorf("owner: %v", o)
		}
		if engine == "embedded" && o["acquired_at"] != float64(record["acquired_at"].(int64)) {
			t.Errorf("owner: %v, SIMBA.OWNER: %v", o, record)
		}

		queue := rows(must(t, url(s), "queue", "job"))
		if len(queue) != 2 || queue[0][0] != "1" || queue[0][2] != "polling" || queue[0][3] != "bob" || queue[1][3] != "carol" {
			t.Errorf("queue: %v", queue)
		}
		if q := objects(t, must(t, url(s), "queue", "job", "--json", "--count", "1")); len(q) != 1 || q[0]["contender"] != "bob" || q[0]["position"] != 1.0 {
			t.Errorf("queue --json: %v", q)
		}

		history := rows(must(t, url(s), "history", "job"))
		first := slices.IndexFunc(history, func(row []string) bool { return row[2] == "acquired" })
		if first < 0 || history[first][3] != token || history[first][4] != "alice" {
			t.Errorf("history: %v", history)
		}
		if e := objects(t, must(t, url(s), "history", "job", "--json")); len(e) == 0 || e[0]["mutex"] != "job" || e[0]["at"].(float64) < 1e12 {
			t.Errorf("history --json: %v", e)
		}

		if got := rows(must(t, url(s), "list", "j*")); len(got) != 1 || !reflect.DeepEqual(got[0][:3], []string{"job", "alice", token}) || got[0][4] != "2" {
			t.Errorf("list: %v", got)
		}
		if got := rows(must(t, url(s), "list", "x*")); len(got) != 0 {
			t.Errorf("list of nothing: %v", got)
		}

		if got := object(t, must(t, url(s), "status", "--json")); got["engine"] != engine || got["tenures_acquired"] != 1.0 {
			t.Errorf("status: %v", got)
		}
		if out := must(t, url(s), "status"); !strings.Contains(out, engine) || !strings.Contains(out, "1 begun") {
			t.Errorf("status prints\n%s", out)
		}
	})
}

func TestExitCodeSaysThatNobodyOwnsTheMutex(t *testing.T) {
	s := simbatest.Start(t)
	r := run(t, url(s), "owner", "job")
	r.fails(t, 1, "job has no owner")
	if r.out != "" {
		t.Errorf("it prints %q", r.out)
	}
	r = run(t, url(s), "owner", "job", "--json")
	r.fails(t, 1, "job has no owner")
	if o := object(t, r.out); o["held"] != false || o["owner"] != "" || o["since"] != nil {
		t.Errorf("it prints %v", o)
	}
	run(t, url(s), "break", "job", "--yes").fails(t, 1, "job has no owner")
}

func TestInvalidArgumentIsNamed(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"owner"}, "owner needs the NAME of a mutex"},
		{[]string{"queue", "a", "b\x1b"}, `unexpected argument 'b\x1b'`},
		{[]string{"status", "a"}, "unexpected argument 'a'"},
		{[]string{"list", "--tall"}, "unknown flag: --tall"},
		{[]string{"queue", "a", "--count", "many"}, "--count"},
	} {
		run(t, "redis://127.0.0.1:1", row.args...).fails(t, 2, row.want)
	}
}

func TestErrorOfTheServerIsShown(t *testing.T) {
	s := simbatest.Start(t)
	run(t, url(s), "owner", "{x}").fails(t, 69, "ERR invalid mutex: it must not contain '{' or '}'")
	run(t, url(s), "queue", "x", "--count", "0").fails(t, 69, "COUNT")
}

// SCAN may return a mutex twice; list prints more than one page, each mutex once.
func TestListShowsEachOfManyMutexesOnce(t *testing.T) {
	s := simbatest.Start(t, "--durability", "memory")
	c := simbatest.GoRedis(t, s)
	const many = 3500
	pipe := c.Pipeline()
	for i := range many {
		pipe.Do(t.Context(), "SIMBA.ACQUIRE", fmt.Sprintf("m:%d", i), "a", 600_000)
	}
	pipe.Do(t.Context(), "SIMBA.ACQUIRE", "m:7", "b", 600_000)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, row := range rows(must(t, url(s), "list")) {
		seen[row[0]]++
	}
	if len(seen) != many {
		t.Errorf("%d mutexes are listed, want %d", len(seen), many)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	if got := objects(t, must(t, url(s), "list", "--contended", "--json")); len(got) != 1 || got[0]["mutex"] != "m:7" || got[0]["waiters"] != 1.0 {
		t.Errorf("contended: %v", got)
	}
}

func TestCompletionOffersMutexes(t *testing.T) {
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	for _, mutex := range []string{"job:1", "job:2", "other", "j*x"} {
		simbatest.Acquire(t, c, mutex, "a", 600_000)
	}
	if err := c.Set(t.Context(), "job\x1b[2J", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	complete := func(prefix string) []string {
		r := run(t, url(s), "__complete", "owner", prefix)
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		slices.Sort(lines[:len(lines)-1])
		return lines
	}
	if got := complete("job"); !slices.Equal(got, []string{"job:1", "job:2", ":4"}) {
		t.Errorf("job: %q", got)
	}
	if got := complete("j*"); !slices.Equal(got, []string{"j*x", ":4"}) {
		t.Errorf("j*: %q", got)
	}
	s.Kill()
	if got := complete("job"); !slices.Equal(got, []string{":4"}) {
		t.Errorf("without a server: %q", got)
	}
}
