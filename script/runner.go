package script

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

const (
	defaultBusyAfter = 5 * time.Second
	defaultMemory    = 64 << 20
)

// Config of a Runner. The zero Config is usable.
type Config struct {
	// BusyAfter is how long a script may run before it counts as busy: it can be killed
	// then, and does not let others wait for it. nil or a result of 0 = 5 s.
	BusyAfter func() time.Duration
	// Memory is by how many bytes the heap may grow while a script runs; 0 = 64 MiB.
	Memory int64
	// Logger gets what scripts log by redis.log; nil = nothing does.
	Logger *slog.Logger
}

// A Call is one run of a script.
type Call struct {
	Source string // of EVAL; "" = by SHA
	SHA    string // of EVALSHA, in either case of letters
	Keys   [][]byte
	Args   [][]byte
	Proto  int // the caller's version of RESP, 2 or 3

	// Yield is called now and then while the script runs, to let others have the processor; nil = nothing does.
	Yield func()
}

// A Runner runs scripts. It is safe for concurrent use.
type Runner struct {
	config Config
	epoch  time.Time
	cache  *cache
	slots  []*slot    // all of them
	free   chan *slot // those without a run
}

// New returns a Runner that knows no scripts. It runs as many at once as there are
// processors for them.
func New(config Config) *Runner {
	if config.Memory <= 0 {
		config.Memory = defaultMemory
	}
	n := runtime.GOMAXPROCS(0)
	r := &Runner{config: config, epoch: time.Now(), cache: newCache(), free: make(chan *slot, n)}
	for range n {
		s := &slot{}
		r.slots = append(r.slots, s)
		r.free <- s
	}
	return r
}

// clock is nanoseconds since the runner is there. It is never 0.
func (r *Runner) clock() int64 { return int64(time.Since(r.epoch)) + 1 }

// Load compiles a script and keeps it until Flush. It returns its SHA1 in hex, or an Error
// if the script does not compile or there are too many.
func (r *Runner) Load(source string) (sha string, err error) {
	c, err := r.compile(source, true)
	if err != nil {
		return "", err
	}
	return c.sha, nil
}

// Exists reports whether a script can be run by its SHA.
func (r *Runner) Exists(sha string) bool { return r.cache.get(sha, false) != nil }

// LimitCache bounds the memory of the scripts that are kept, in bytes; more than 64 MiB it never is. Those that
// came by EVAL are forgotten to keep within it, the one first that was not used for longest; more cannot be loaded.
func (r *Runner) LimitCache(bytes int) { r.cache.limit(bytes) }

// Flush forgets all scripts. Those that run go on.
func (r *Runner) Flush() { r.cache.flush() }

// Run runs a script and writes its reply to w, or nothing and returns an Error whose text is
// the reply. It returns ctx' error if that ends first. A script that returns an error as its
// value has not failed: the error is its reply.
func (r *Runner) Run(ctx context.Context, c Call, h Host, w *resp.Writer) error {
	script, err := r.find(c)
	if err != nil {
		return err
	}
	s, err := r.turn(ctx)
	if err != nil {
		return err
	}
	started := r.clock()
	s.started.Store(started)
	defer func() {
		s.started.Store(0)
		r.free <- s
	}()
	if s.state == nil {
		s.state = newState(r.config.Logger, newMeter(r.clock, r.config.Memory, &s.killed))
	}
	start := w.Len()
	usable, err := s.state.run(ctx, script, c, h, w, started)
	if !usable {
		s.state = nil
	}
	if err != nil {
		w.Truncate(start)
	}
	return err
}

func (r *Runner) find(c Call) (*compiled, error) {
	if c.Source != "" || c.SHA == "" {
		return r.compile(c.Source, false)
	}
	if found := r.cache.get(c.SHA, false); found != nil {
		return found, nil
	}
	return nil, ErrNoScript
}

func (r *Runner) compile(source string, load bool) (*compiled, error) {
	if found := r.cache.get(shaOf(source), load); found != nil {
		return found, nil
	}
	s, err := compileScript(source)
	if err != nil {
		return nil, err
	}
	return s, r.cache.add(s, load)
}
