package commands

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

type countsWrites struct {
	*engine.Engine
	writes atomic.Int64
}

func (g *countsWrites) Update(do func(simba.Tx) error) (simba.Seq, error) {
	return g.Engine.Update(func(tx simba.Tx) error { return do(writesTx{tx, g}) })
}

func (g *countsWrites) UpdateOne(mutex string, do func(simba.Tx) error) (simba.Seq, error) {
	return g.Engine.UpdateOne(mutex, func(tx simba.Tx) error { return do(writesTx{tx, g}) })
}

type writesTx struct {
	simba.Tx
	space *countsWrites
}

func (t writesTx) Take(m string, l simba.Lock) { t.space.writes.Add(1); t.Tx.Take(m, l) }
func (t writesTx) Change(m string, l simba.Lock, renew bool) {
	t.space.writes.Add(1)
	t.Tx.Change(m, l, renew)
}
func (t writesTx) Drop(m string)             { t.space.writes.Add(1); t.Tx.Drop(m) }
func (t writesTx) DropToken(m string)        { t.space.writes.Add(1); t.Tx.DropToken(m) }
func (t writesTx) NextToken(m string) uint64 { t.space.writes.Add(1); return t.Tx.NextToken(m) }
func (t writesTx) Enqueue(m, c string, score float64) {
	t.space.writes.Add(1)
	t.Tx.Enqueue(m, c, score)
}
func (t writesTx) Dequeue(m, c string)        { t.space.writes.Add(1); t.Tx.Dequeue(m, c) }
func (t writesTx) Publish(ch, payload string) { t.space.writes.Add(1); t.Tx.Publish(ch, payload) }

// Commands with the flag readonly run in the same kind of transaction as commands that write. The
// flag alone does not prevent a change.
func TestACommandThatReadsChangesNothing(t *testing.T) {
	space := &countsWrites{Engine: newEngine(t)}
	p := newSite(t, Config{Backend: space}).dial()
	for _, command := range []string{"SET s 1 PX 60000", "HSET h f 1", "ZADD simba:{s}:contender 1 f"} {
		p.do(command)
	}
	if space.writes.Load() != 3 {
		t.Fatalf("countsWrites counts %d writes, want 3", space.writes.Load())
	}
	run := 0
	for e := range newTable(families()).all() {
		if !e.has(readonly) || e.keyed == nil {
			continue
		}
		run++
		for _, key := range []string{"none", "s", "h", "simba:{s}:contender", "simba:{s}:token", "simba:{s}:fence"} {
			before := space.writes.Load()
			arity := max(e.arity, -e.arity)
			for _, more := range []string{" f", " 0"} {
				command := e.name + strings.Repeat(" "+key, min(1, arity-1)) + strings.Repeat(more, max(0, arity-2))
				p.do(command)
				if space.writes.Load() != before {
					t.Errorf("%s is readonly in the table, but writes", command)
				}
			}
		}
	}
	if run < 20 {
		t.Errorf("only %d readonly commands were run, want at least 20", run)
	}
}
