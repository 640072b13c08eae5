package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// race lets contenders pass one mutex on, again and again.
type race struct {
	t          *testing.T
	server     *simbatest.Server
	contenders []*contender
	length     time.Duration  // of a tenure
	started    sync.WaitGroup // until the first process of each contender has started
	tenures    tenures.Log    // by language
	ids        tenures.Log    // the same, by contender id
	shares     tenures.Log    // those of tenures for which all contenders were there
	count      atomic.Int64   // of the tenures
	over       chan struct{}  // closed when there were enough tenures
}

// contender is one process after the other, each with another variant of one language.
type contender struct {
	language string
	variants []variant
	commands [][]string            // by variant
	careless bool                  // it takes itself for the owner until it unlocks, without asking its client
	agent    atomic.Pointer[agent] // nil = it starts
	killed   atomic.Bool
}

const contested = "contested"

// run returns when there were so many tenures.
func (r *race) run(n int64, kill func()) {
	r.over = make(chan struct{})
	r.started.Add(len(r.contenders))
	var running sync.WaitGroup
	for _, k := range r.contenders {
		running.Go(func() {
			for process := 0; !r.isOver(); process++ {
				r.contend(k, process)
			}
		})
	}
	kill()
	r.until(func() bool { return r.count.Load() >= n })
	close(r.over)
	running.Wait()
}

// until waits until holds returns true, or the test has failed.
func (r *race) until(holds func() bool) {
	for !holds() && !r.t.Failed() {
		time.Sleep(time.Millisecond)
	}
}

func (r *race) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return r.t.Failed()
	}
}

// contend starts a process, which has tenures until it is killed.
func (r *race) contend(k *contender, process int) {
	v := k.variants[process%len(k.variants)]
	a, err := startAgent(r.t, k.commands[process%len(k.variants)], nil)
	if err == nil {
		defer a.cmd.Process.Kill()
		var opened line
		opened, err = a.ask(map[string]any{"do": "open", "url": "redis://" + r.server.Addr, "protocol": 2 + process%2, "variant": v.option})
		if opened.Error != "" {
			err = fmt.Errorf("open fails with %s: %s", opened.Error, opened.Text)
		}
		k.agent.Store(a)
	}
	if process == 0 {
		r.started.Done()
		r.started.Wait()
	}
	for err == nil && !r.isOver() {
		err = r.tenure(k, a)
	}
	k.agent.Store(nil)
	if err != nil && !k.killed.Swap(false) {
		r.t.Errorf("%s was not killed: %v", v.name, err)
	}
}

// tenure notes one tenure. The error says that the process has ended.
func (r *race) tenure(k *contender, a *agent) error {
	l, err := a.ask(map[string]any{"do": "lock", "mutex": contested, "as": "x", "ttl": 1000, "grace": 1000})
	if err != nil {
		return err
	}
	if l.Error != "" {
		r.t.Errorf("%s: lock fails with %s: %s", k.language, l.Error, l.Text)
		return nil
	}
	token, _ := l.OK["token"].(float64)
	from := time.Duration(l.At) * time.Microsecond
	one := tenures.Tenure{Owner: k.language, Token: uint64(token), From: from, To: from}
	if !slices.ContainsFunc(r.contenders, func(k *contender) bool { return k.agent.Load() == nil }) {
		r.shares.Add(one)
	}
	defer func() {
		r.tenures.Add(one)
		one.Owner, _ = l.OK["id"].(string)
		r.ids.Add(one)
		r.count.Add(1)
	}()
	for one.To-from < r.length {
		time.Sleep(2 * time.Millisecond)
		at := tenures.Clock() // before the client says that it owns the mutex
		held := k.careless
		if !held {
			l, err := a.ask(map[string]any{"do": "held", "as": "x"})
			if err != nil {
				return err
			}
			held, _ = l.OK["held"].(bool)
		}
		if !held {
			break
		}
		one.To = at
	}
	_, err = a.ask(map[string]any{"do": "unlock", "as": "x"}) // perhaps the mutex was lost, or the server is away
	return err
}

// reaches waits until there were so many tenures, and a part of another one.
func (r *race) reaches(n int64) {
	r.until(func() bool { return r.count.Load() >= n })
	time.Sleep(rand.N(2 * r.length))
}

// newRace returns a race of the languages.
func newRace(t *testing.T, length time.Duration, languages ...string) *race {
	r := &race{t: t, server: simbatest.Start(t), length: length}
	commands := make(map[string][]string)
	for i, language := range languages {
		k := &contender{language: fmt.Sprint(language, " ", i)}
		for _, v := range variants {
			if v.language != language || v.version != "" {
				continue
			}
			if commands[v.name] == nil {
				commands[v.name] = v.agent(t, "")
			}
			k.variants, k.commands = append(k.variants, v), append(k.commands, commands[v.name])
		}
		r.contenders = append(r.contenders, k)
	}
	return r
}

// TestTenuresPassBetweenClientsWithKills kills each contender, and the server, again and again.
func TestTenuresPassBetweenClientsWithKills(t *testing.T) {
	languages := []string{"go", "python", "node", "jvm"}
	n, kills := int64(simbatest.Count(150, 1000)), simbatest.Count(1, 5) // of each contender, and of the server
	r := newRace(t, 20*time.Millisecond, languages...)
	killed := make(map[string]int)
	r.run(n, func() {
		victims := slices.Repeat(append(slices.Clone(r.contenders), nil), kills) // nil = the server
		rand.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for i, k := range victims {
			r.reaches(n * int64(i+1) / int64(len(victims)+1))
			if k == nil {
				r.server.Restart()
				killed["server"]++
				continue
			}
			r.until(func() bool { return k.agent.Load() != nil })
			if a := k.agent.Load(); a != nil {
				k.killed.Store(true)
				_ = a.cmd.Process.Kill()
				killed[k.language]++
			}
		}
	})
	noted := r.tenures.NeverTwo(t)
	c := simbatest.Conn(t, r.server)
	events, err := tenures.Events(c.Do("SIMBA.HISTORY", contested, "COUNT", 10_000))
	simbatest.Must(t, err)
	t.Logf("%d tenures in %v, %d in the history, %v; killed: %v", len(noted), noted[len(noted)-1].To-noted[0].From,
		tenures.ServerSaw(t, events, r.ids.InOrder()), r.tenures.Owners(), killed)
	shares := r.shares.Owners()
	t.Logf("Jain's index of the shares is %.4f; while all contenders were there, %.4f", tenures.Jain(r.tenures.Owners()), tenures.Jain(shares))
	if tenures.Jain(shares) < 0.95 || len(shares) != len(languages) {
		t.Errorf("the shares are %v: Jain's index is less than 0.95", shares)
	}
}

// TestCarelessContenderIsFound shows that the records of a race convict a client that ignores its loss.
func TestCarelessContenderIsFound(t *testing.T) {
	r := newRace(t, 50*time.Millisecond, "go", "go")
	r.contenders[0].careless = true
	r.run(10, func() {
		c := simbatest.Conn(t, r.server)
		for n := range int64(8) {
			r.reaches(n)
			_, err := redis.Int(c.Do("SIMBA.BREAK", contested))
			simbatest.Must(t, err)
		}
	})
	if len(tenures.Overlaps(r.tenures.InOrder())) == 0 {
		t.Errorf("no overlap was found in %v", r.tenures.InOrder())
	}
}
