package script

import (
	"cmp"
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

// Config configures a Runner. The zero Config is usable.
type Config struct {
	// BusyAfter returns how long a script runs before it counts as busy; nil = 5 s. A busy
	// script can be killed, and no other script waits for its slot.
	BusyAfter func() time.Duration
	// Memory is the allowed growth of the heap in bytes while a script runs; 0 = 64 MiB.
	Memory int64
	// Logger receives the messages of redis.log; nil = the runner drops them.
	Logger *slog.Logger
}

// Call is one run of a script.
type Call struct {
	Source string // of EVAL; "" = use SHA
	SHA    string // of EVALSHA, in upper or lower case
	Keys   [][]byte
	Args   [][]byte

	// Yield is called now and then while the script runs, so that other work can use the processor.
	// It may be nil.
	Yield func()
}

// Runner runs scripts. It is safe for concurrent use.
type Runner struct {
	config Config
	epoch  time.Time
	cache  *cache
	slots  []*slot    // all slots
	free   chan *slot // slots without a script
}

// New returns a Runner with an empty cache. It runs at most GOMAXPROCS scripts at a time.
func New(config Config) *Runner {
	if config.BusyAfter == nil {
		config.BusyAfter = func() time.Duration { return defaultBusyAfter }
	}
	config.Memory = cmp.Or(config.Memory, defaultMemory)
	n := runtime.GOMAXPROCS(0)
	r := &Runner{config: config, epoch: time.Now(), cache: newCache(), free: make(chan *slot, n)}
	for range n {
		s := &slot{}
		r.slots = append(r.slots, s)
		r.free <- s
	}
	return r
}

// clock returns the nanoseconds since New, plus 1. It is never 0.
func (r *Runner) clock() int64 { return int64(time.Since(r.epoch)) + 1 }

// Load compiles a script and caches it until Flush. It returns the SHA1 in hex, or an Error if the
// script does not compile or the cache is full.
func (r *Runner) Load(source string) (sha string, err error) {
	c, err := r.compile(source, true)
	if err != nil {
		return "", err
	}
	return c.sha, nil
}

// Exists reports whether the cache has the script with that SHA.
func (r *Runner) Exists(sha string) bool { return r.cache.get(sha, false) != nil }

// LimitCache sets the maximum size of the cache in bytes, at most 64 MiB. The cache evicts scripts
// of EVAL, the least recently used first. It refuses loaded scripts that do not fit.
func (r *Runner) LimitCache(bytes int) { r.cache.limit(bytes) }

// Flush removes all scripts from the cache. Running scripts go on.
func (r *Runner) Flush() { r.cache.flush() }

// Run runs a script and writes its reply to w. If the script fails, Run writes nothing and returns
// an Error, whose text is the reply. If ctx ends first, Run returns ctx's error. A script that
// returns an error as its value has not failed: Run writes the error as its reply.
func (r *Runner) Run(ctx context.Context, c Call, h Host, w *resp.Writer) error {
	script, err := r.find(c)
	if err != nil {
		return err
	}
	s, err := r.acquireSlot(ctx)
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
