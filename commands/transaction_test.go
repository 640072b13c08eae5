package commands

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/resp"
)

// A queued command must allocate little, because garbage collection slows all clients down.
func TestALongTransactionAllocatesLittle(t *testing.T) {
	const runs, commands = 20, 1000
	words := func(line string) [][]byte { return bytes.Fields([]byte(line)) }
	multi, set, exec := words("MULTI"), words("SET key value PX 1000"), words("EXEC")
	var before, after runtime.MemStats
	onConnectionTo(t, newEngine(t), func(x *Commands, conn *resp.Conn) {
		for i := range 1 + runs {
			if i == 1 { // the first run makes what later ones reuse
				runtime.ReadMemStats(&before)
			}
			x.Execute(conn, multi)
			for range commands {
				x.Execute(conn, set)
			}
			x.Execute(conn, exec)
			conn.Reply().Truncate(0)
			if err := conn.Commit(); err != nil {
				t.Error(err)
			}
		}
		runtime.ReadMemStats(&after)
	})
	if n := (after.TotalAlloc - before.TotalAlloc) / (runs * commands); n > 150 {
		t.Errorf("a queued command allocates %d bytes, want at most 150", n)
	}
}

func TestQueuedArgumentsAreUnchanged(t *testing.T) {
	tx := new(transaction)
	var want [][][]byte
	for i, size := range []int{0, 1, 100, 500, queueChunk/4 - 12, queueChunk/4 - 11, queueChunk/4 - 10, queueChunk / 4, queueChunk, 10 * queueChunk, 7, 1000, 1000, 1000, 1000, 1000} {
		long := bytes.Repeat([]byte{byte(i)}, size)
		for _, args := range [][][]byte{{[]byte("SET"), long}, {long, {}, long}, {{}}} {
			want = append(want, args)
			tx.queue = append(tx.queue, queuedCommand{packed: tx.pack(args)})
		}
	}
	for i, q := range tx.queue {
		if got := tx.unpack(q); !slices.EqualFunc(got, want[i], bytes.Equal) {
			t.Errorf("command %d is %.40q, want %.40q", i, got, want[i])
		}
	}
}

func TestATransactionStartsEmpty(t *testing.T) {
	tx := &transaction{broken: true, grows: true, bytes: 1, calls: []execution{{took: 1, err: errWrongType}}}
	for _, args := range [][][]byte{{[]byte("GET"), []byte("a")}, {[]byte("QUIT")}} {
		tx.queue = append(tx.queue, queuedCommand{new(entry), tx.pack(args)})
		tx.unpack(tx.queue[len(tx.queue)-1])
	}
	tx.reset()
	if len(tx.queue)+len(tx.chunk)+len(tx.args)+len(tx.calls)+tx.bytes > 0 || tx.broken || tx.grows {
		t.Errorf("after reset the transaction has %+v, want nothing", tx)
	}
	for i, a := range tx.args[:cap(tx.args)] {
		if a != nil {
			t.Errorf("after reset the memory of argument %d still refers to %q", i, a)
		}
	}
	if q, c := tx.queue[:2], tx.calls[:1]; q[0].entry != nil || q[1].packed != nil || c[0].err != nil {
		t.Errorf("after reset the memory still has the commands %+v and the results %+v", q, c)
	}

	p := newEngineSite(t).dial()
	p.expectTransaction("*2\r\n+OK\r\n-"+string(errWrongType)+"\r\n", "SET a 1 PX 1000000", "HGET a f")
	p.expect("MULTI", ok)
	p.expect("SET b 1", queued)
	p.expect("SET b", failed("ERR wrong number of arguments for 'set' command"))
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	p.expect("MULTI", ok)
	p.expect("SET c 1", queued)
	p.expect("DISCARD", ok)
	p.expectTransaction("*2\r\n$1\r\n1\r\n:1\r\n", "GET a", "EXISTS a b c")
	p.expectTransaction("*0\r\n")
}

func TestTransactionsAreBounded(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("MULTI", ok)
	big := "ECHO " + strings.Repeat("x", 60<<10)
	refused := 0
	for range maxQueuedBytes/(60<<10) + 2 {
		if got := p.do(big); got != "+QUEUED\r\n" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no command was refused")
	}
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
}

func TestEmptyArgumentsCountInATransaction(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("MULTI", ok)
	const words = 1000
	command := "COMMAND INFO" + strings.Repeat(` ""`, words)
	queued := 0
	for p.do(command) == "+QUEUED\r\n" {
		queued++
	}
	if most := maxQueuedBytes / (words * argumentOverhead); queued == 0 || queued > most {
		t.Errorf("%d commands of %d empty arguments were queued, want at most %d", queued, words, most)
	}
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
}
