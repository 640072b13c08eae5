package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
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

func TestCommandsShowOwnerQueueAndHistory(t *testing.T) {
	simbatest.OnEveryEngine(t, func(t *testing.T, engine string) {
		s := contended(t, engine)
		record := simbatest.DoRecord(t, simbatest.Conn(t, s), "SIMBA.OWNER", "job")
		token := fmt.Sprint(record["token"])

		for _, want := range []string{"owner ", " alice\n", "token ", token + "\n", "waiters     2\n"} {
			if out := must(t, url(s), "owner", "job"); !strings.Contains(out, want) {
				t.Errorf("owner prints\n%s\nwant %q in it", out, want)
			}
		}
		o := object(t, must(t, url(s), "owner", "--json", "job"))
		if o["held"] != true || o["owner"] != "alice" || fmt.Sprintf("%.0f", o["token"]) != token || o["transition_ms"].(float64) <= o["ttl_ms"].(float64) {
			t.Errorf("owner --json prints %v, want alice with token %s, and transition_ms larger than ttl_ms", o, token)
		}
		if engine == "embedded" && o["acquired_at"] != float64(record["acquired_at"].(int64)) {
			t.Errorf("owner --json prints %v, but SIMBA.OWNER returns %v", o, record)
		}

		queue := rows(must(t, url(s), "queue", "job"))
		if len(queue) != 2 || queue[0][0] != "1" || queue[0][2] != "polling" || queue[0][3] != "bob" || queue[1][3] != "carol" {
			t.Errorf("queue prints the rows %v, want bob, who polls, and then carol", queue)
		}
		if q := objects(t, must(t, url(s), "queue", "job", "--json", "--count", "1")); len(q) != 1 || q[0]["contender"] != "bob" || q[0]["position"] != 1.0 {
			t.Errorf("queue --json --count 1 prints %v, want bob at position 1", q)
		}

		history := rows(must(t, url(s), "history", "job"))
		first := slices.IndexFunc(history, func(row []string) bool { return row[1] == "acquired" })
		if first < 0 || history[first][2] != token || history[first][3] != "alice" {
			t.Errorf("history prints the rows %v, want the grant of token %s to alice", history, token)
		}
		if e := objects(t, must(t, url(s), "history", "job", "--json")); len(e) == 0 || e[0]["mutex"] != "job" || e[0]["at"].(float64) < 1e12 {
			t.Errorf("history --json prints %v, want events of job with a time in ms", e)
		}

		if got := rows(must(t, url(s), "list", "j*")); len(got) != 1 || !reflect.DeepEqual(got[0][:3], []string{"job", "alice", token}) || got[0][4] != "2" {
			t.Errorf("list prints the rows %v, want job of alice with two waiters", got)
		}
		if got := rows(must(t, url(s), "list", "x*")); len(got) != 0 {
			t.Errorf("list without a match prints the rows %v, want none", got)
		}

		if got := object(t, must(t, url(s), "status", "--json")); got["engine"] != engine || got["tenures_acquired"] != 1.0 || got["store_up"] != true {
			t.Errorf("status --json prints %v, want the engine %s, one tenure, and a store that is up", got, engine)
		}
		if out := must(t, url(s), "status"); !strings.Contains(out, engine) || !strings.Contains(out, "1 begun") {
			t.Errorf("status prints\n%s\nwant the engine %s and one tenure", out, engine)
		}
	})
}

func TestStatusSaysWhetherTheStoreAnswers(t *testing.T) {
	store := simbatest.OpenShared(t, "redis")
	link := stores.NewLink(t, store.Store.Addr)
	users := writeUsers(t, "user default on nopass ~* &* +@all", "user blind on >pen +info +hello +ping")
	s := simbatest.Start(t, append(store.Flags(link.Addr()), "--aclfile", users)...)
	blind := "redis://blind:pen@" + s.Addr
	if out := must(t, url(s), "status"); !regexp.MustCompile(`(?m)^store +serves requests$`).MatchString(out) {
		t.Errorf("status prints\n%s\nwant that the store serves requests", out)
	}
	// The store does not sync each write.
	if out := must(t, url(s), "status"); !regexp.MustCompile(`(?m)^store fault +redis at .* \(appendfsync no\)`).MatchString(out) {
		t.Errorf("status prints\n%s\nwant a store fault that names appendfsync", out)
	}
	if o := object(t, must(t, url(s), "status", "--json")); len(o["store_faults"].([]any)) != 1 {
		t.Errorf("status --json prints %v, want one of store_faults", o)
	}
	link.Refuse()
	r := run(t, url(s), "status")
	r.fails(t, 69, "TRYAGAIN engine redis unavailable")
	if !regexp.MustCompile(`(?m)^store +does not serve requests$`).MatchString(r.out) {
		t.Errorf("during an outage status prints\n%s\nwant that the store does not serve requests", r.out)
	}
	r = run(t, url(s), "status", "--json")
	r.fails(t, 69, "TRYAGAIN engine redis unavailable")
	if o := object(t, r.out); o["store_up"] != false {
		t.Errorf("during an outage status --json prints %v, want store_up false", o)
	}
	if out := must(t, blind, "status"); !regexp.MustCompile(`(?m)^store +unknown: `).MatchString(out) {
		t.Errorf("for a user without SIMBA.OWNER status prints\n%s\nwant that the state of the store is unknown", out)
	}
	if o := object(t, must(t, blind, "status", "--json")); o["store_up"] != nil {
		t.Errorf("for a user without SIMBA.OWNER status --json prints %v, want store_up null", o)
	}
}

func TestTimesHaveAnOffset(t *testing.T) {
	s := contended(t, "embedded")
	var shown [2][]time.Time
	for i, zone := range []string{"Asia/Kolkata", "America/New_York"} {
		for _, command := range []string{"owner", "history", "why"} {
			r := runWith(t, []string{"SIMBA_URL=" + url(s), "TZ=" + zone}, command, "job")
			for word := range strings.FieldsSeq(r.out) {
				if at, err := time.Parse(time.RFC3339, word); err == nil {
					shown[i] = append(shown[i], at)
				}
			}
		}
	}
	if len(shown[0]) != 5 || len(shown[1]) != 5 {
		t.Fatalf("owner, history and why show the times %v, want 5 in each zone, in the format of RFC 3339", shown)
	}
	for i, at := range shown[0] {
		_, first := at.Zone()
		_, second := shown[1][i].Zone()
		if !at.Equal(shown[1][i]) || first == second {
			t.Errorf("two operators see %v and %v, want one moment in two zones", at, shown[1][i])
		}
	}
}

func TestExitCodeSaysThatNobodyOwnsTheMutex(t *testing.T) {
	s := simbatest.Start(t)
	r := run(t, url(s), "owner", "job")
	r.fails(t, 1, "job has no owner")
	if r.out != "" {
		t.Errorf("owner of a free mutex prints %q, want nothing", r.out)
	}
	r = run(t, url(s), "owner", "job", "--json")
	r.fails(t, 1, "job has no owner")
	if o := object(t, r.out); o["held"] != false || o["owner"] != "" || o["since"] != nil {
		t.Errorf("owner --json of a free mutex prints %v, want no owner", o)
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
		{[]string{"lock", "a", "--conflict-exit-code", "256", "--", "true"}, "not 0 to 255"},
		{[]string{"lock", "a", "--wait", "0", "--", "true"}, "use a positive duration, or --try"},
		{[]string{"lock", "a", "--ttl", "-1s", "--", "true"}, "--ttl is -1s"},
		{[]string{"elect", "a", "--grace", "0", "--", "true"}, "--grace is 0s"},
		{[]string{"elect", "a", "--ttl", "ten", "--", "true"}, "--ttl"},
		{[]string{"restore", "a", "--data-dir", "b", "--recovery-delay", "-1s"}, "--recovery-delay must be above 0"},
		{[]string{"elect", "a", "--ttl", "10", "--", "true"}, "missing unit in duration"},
		{[]string{"ownr", "a"}, "unknown command 'ownr'; do you mean owner? (simba-resp --help lists the commands)"},
		{[]string{"x\x1b"}, `unknown command 'x\x1b'`},
		{[]string{"serve", "now"}, "unexpected argument 'now'"},
		{[]string{"status", "--url", "http://127.0.0.1:7379"}, "--url: use redis://host:port"},
	} {
		run(t, "redis://127.0.0.1:1", row.args...).fails(t, 2, row.want)
	}
}

func TestHelpShowsNoEmptyDefault(t *testing.T) {
	for _, command := range []string{
		"status", "list", "owner", "queue", "history", "watch", "why", "break", "health", "lock", "elect", "backup", "restore",
	} {
		out := must(t, "", command, "--help")
		if !strings.Contains(out, "simba-resp "+command) || strings.Contains(out, "(default )") || strings.Contains(out, "(default 0s)") {
			t.Errorf("%s --help shows an empty default, or no usage:\n%s", command, out)
		}
	}
}

func TestStatusComparesTheDatasetWithMaxmemory(t *testing.T) {
	s := simbatest.Start(t, "--maxmemory", "64mb")
	if out := must(t, url(s), "status"); !regexp.MustCompile(`(?m)^dataset +\d\.\d MiB of maxmemory 64\.0 MiB$`).MatchString(out) {
		t.Errorf("status prints\n%s\nwant the dataset and maxmemory 64.0 MiB", out)
	}
	o := object(t, must(t, url(s), "status", "--json"))
	if o["maxmemory_bytes"] != 64.0*(1<<20) || o["used_memory_dataset_bytes"].(float64) >= o["used_memory_bytes"].(float64) {
		t.Errorf("status --json prints %v, want maxmemory 64 MiB and a dataset below the used memory", o)
	}
}

func TestKeyWithoutExpiryHasNoExpiry(t *testing.T) {
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	simbatest.Must(t, c.Set(t.Context(), "key", "v", 0).Err())
	conn := simbatest.Conn(t, s)
	// In its first millisecond, a lock without expiry looks like a lease of 24 h.
	for now, then := any(0), any(0); now == then; {
		r := simbatest.DoRecord(t, conn, "SIMBA.OWNER", "key")
		now, then = r["now"], r["acquired_at"]
	}
	for command, want := range map[string]string{"owner": "lease       no expiry\n", "list": "  no expiry  ", "why": "its lease has no expiry; it began "} {
		args := []string{command, "key"}
		if out := must(t, url(s), args...); !strings.Contains(out, want) {
			t.Errorf("%s prints\n%s\nwant %q in it", command, out, want)
		}
	}
	if o := object(t, must(t, url(s), "owner", "key", "--json")); o["ttl_ms"] != nil || o["transition_at"] != nil {
		t.Errorf("owner --json prints %v, want no end of the lease", o)
	}
}

// SIMBA.SCAN needs several replies for so many mutexes, and may return a mutex twice.
func TestListShowsEachOfManyMutexesOnceInOrder(t *testing.T) {
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
	var names []string
	for _, row := range rows(must(t, url(s), "list")) {
		names = append(names, row[0])
	}
	if distinct := slices.Compact(slices.Clone(names)); len(names) != many || len(distinct) != many || !slices.IsSorted(names) {
		t.Errorf("list shows %d mutexes, %d of them different, want %d in order", len(names), len(distinct), many)
	}
	if got := objects(t, must(t, url(s), "list", "--contended", "--json")); len(got) != 1 || got[0]["mutex"] != "m:7" || got[0]["waiters"] != 1.0 {
		t.Errorf("list --contended --json prints %v, want only m:7", got)
	}
}

// If SIMBA.OWNER fails with TRYAGAIN, list fails, since its output is incomplete. If the server
// refuses SIMBA.OWNER, list succeeds. In both cases the row of the mutex shows "?".
func TestListWithoutAllOwnersIsIncomplete(t *testing.T) {
	server := func(owner string) string {
		return listen(t, func(c net.Conn) {
			r := bufio.NewReader(c)
			for {
				args, err := readCommand(r)
				if err != nil {
					return
				}
				reply := "+OK\r\n"
				switch strings.ToUpper(args[0]) {
				case "HELLO":
					reply = "-ERR unknown command\r\n"
				case "SIMBA.SCAN":
					reply = "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nb\r\n$1\r\na\r\n"
				case "SIMBA.OWNER":
					if reply = "*4\r\n$5\r\nowner\r\n$5\r\nalice\r\n$5\r\ntoken\r\n:7\r\n"; args[1] == "b" {
						reply = owner
					}
				}
				if _, err := io.WriteString(c, reply); err != nil {
					return
				}
			}
		})
	}
	away := "redis://" + server("-TRYAGAIN engine redis unavailable\r\n")
	r := run(t, away, "list")
	r.fails(t, 69, "incomplete: the owners of 1 of 2 mutexes are not known: TRYAGAIN engine redis unavailable")
	if got := rows(r.out); len(got) != 2 || got[0][1] != "alice" || got[1][1] != "?" {
		t.Errorf("list prints\n%s\nwant a row with alice and a row with ?", r.out)
	}
	r = run(t, away, "list", "--json")
	r.fails(t, 69, "incomplete")
	if got := objects(t, r.out); len(got) != 2 || got[0]["owner"] != "alice" || got[1]["error"] != "TRYAGAIN engine redis unavailable" {
		t.Errorf("list --json prints\n%s\nwant an object with alice and an object with the error", r.out)
	}
	for _, refusal := range []string{"-NOPERM no permission\r\n", "-ERR invalid mutex: it must not contain white space\r\n"} {
		if got := rows(must(t, "redis://"+server(refusal), "list")); len(got) != 2 || got[1][1] != "?" {
			t.Errorf("after the reply %s list prints the rows %v, want two, the second with ?", refusal, got)
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	number := func(prefix string) (n int, err error) {
		line, err := r.ReadString('\n')
		if err == nil {
			_, err = fmt.Sscanf(line, prefix+"%d\r\n", &n)
		}
		return n, err
	}
	n, err := number("*")
	args := make([]string, n)
	for i := range args {
		var length int
		if length, err = number("$"); err != nil {
			return nil, err
		}
		arg := make([]byte, length+len("\r\n"))
		if _, err = io.ReadFull(r, arg); err != nil {
			return nil, err
		}
		args[i] = string(arg[:length])
	}
	return args, err
}

func TestCompletionOffersMutexes(t *testing.T) {
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	for _, mutex := range []string{"job:1", "job:2", "other", "j*x"} {
		simbatest.Acquire(t, c, mutex, "a", 600_000)
	}
	simbatest.Must(t, c.Set(t.Context(), "job\x1b[2J", "v", time.Hour).Err())
	complete := func(prefix string) []string {
		r := run(t, url(s), "__complete", "owner", prefix)
		if wrapped := run(t, url(s), "__complete", "lock", "--try", prefix); wrapped.out != r.out {
			t.Errorf("the completion for lock is %q, want %q as for owner", wrapped.out, r.out)
		}
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		slices.Sort(lines[:len(lines)-1])
		return lines
	}
	if got := complete("job"); !slices.Equal(got, []string{"job:1", "job:2", ":4"}) {
		t.Errorf("the completion of job is %q", got)
	}
	if got := complete("j*"); !slices.Equal(got, []string{"j*x", ":4"}) {
		t.Errorf("the completion of j* is %q", got)
	}
	s.Kill()
	if got := complete("job"); !slices.Equal(got, []string{":4"}) {
		t.Errorf("without a server the completion is %q", got)
	}
}

// bare runs simba-resp without arguments in an empty folder.
func bare(t *testing.T, variables ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(simbatest.Binary(t))
	cmd.Env, cmd.Dir = append(simbatest.Environ(), variables...), t.TempDir()
	return cmd
}

func TestABareCallListsTheCommandsAndServesNothing(t *testing.T) {
	for _, variable := range []string{"A=b", "SIMBA_URL=redis://127.0.0.1:1", "SIMBA_ADDR="} {
		cmd := bare(t, variable)
		p := simbatest.RunCmd(t, cmd)
		if code := p.Wait(t); code != 2 {
			t.Errorf("with %s a bare call exits with code %d, want 2", variable, code)
		}
		out := strings.TrimRight(p.Output(), "\n") + "\n"
		if out != must(t, "redis://127.0.0.1:1", "--help") || !strings.Contains(out, "\n  serve ") || strings.Count(out, "\n") > 30 || strings.Contains(out, "--addr") {
			t.Errorf("with %s a bare call prints\n%s\nwant at most 30 lines with the commands, as --help", variable, out)
		}
		if made, err := os.ReadDir(cmd.Dir); len(made) > 0 || err != nil {
			t.Errorf("with %s a bare call made %v, %v", variable, made, err)
		}
	}
}

func TestAFlagOrASettingWithoutACommandServes(t *testing.T) {
	flags := bare(t)
	flags.Args = append(flags.Args, "--addr", "127.0.0.1:0")
	for _, cmd := range []*exec.Cmd{flags, bare(t, "SIMBA_ADDR=127.0.0.1:0")} {
		simbatest.RunCmd(t, cmd).Wants(t, "msg=ready")
	}
	run(t, "", "--nonsense").fails(t, 2, "(simba-resp serve --help lists the flags)")
}

func TestListShowsTheMutexesOfOneOwner(t *testing.T) {
	s := contended(t, "embedded")
	c := simbatest.GoRedis(t, s)
	simbatest.Acquire(t, c, "report", "alice", 600_000)
	simbatest.Acquire(t, c, "other", "alice-2", 600_000)
	if got := rows(must(t, url(s), "list", "--owner", "alice")); len(got) != 2 || got[0][0] != "job" || got[1][0] != "report" {
		t.Errorf("list --owner alice prints the rows %v, want job and report", got)
	}
	if got := rows(must(t, url(s), "list", "--owner", "bob")); len(got) != 0 { // a waiter
		t.Errorf("list --owner bob prints the rows %v, want none", got)
	}
	if o := object(t, must(t, url(s), "list", "--owner", "alice", "--contended", "--json")); o["mutex"] != "job" {
		t.Errorf("list --owner alice --contended prints %v, want job", o)
	}
}
