package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

const (
	maxBatch = 128 // requests that travel together
	// maxFlights is how many batches are on the way to one node at a time. With one, a
	// lost connection would hold up all; many make batches small, which costs processors.
	maxInFlight = 2
)

// pipeline carries the requests of concurrent clients to one node together. A lone
// request is sent at once; those that arrive while all flights are under way wait for
// the next to return. Safe for concurrent use.
type pipeline struct {
	client  *redis.Client
	timeout time.Duration
	tasks   *tasks
	clock   clock         // of the node
	slots   chan struct{} // bounds the work in background there
	// judge takes in the error of a request that was sent at some time.
	judge func(client *redis.Client, sent time.Time, err error)

	mu       sync.Mutex // guards what follows
	queue    []*request
	inFlight int
	last     int // requests in the last batch
}

// request is one script to run. Its reply and err are set before done is closed, and
// read only after.
type request struct {
	script *script
	args   []any // of EVALSHA, its name included

	gone  atomic.Bool // nobody waits for it; not sent if it was not yet
	done  chan struct{}
	reply any
	err   error
}

// errOverdue is the fate of a script that did nothing, since it reached Redis too late.
var errOverdue = errors.New("the request was too long on its way")

// limitArg is where a script finds when it is too late to run, among the args of EVALSHA.
const deadlineArg = 3 + len(suffixes) + 4

// do runs a script, or gives up when ctx ends: then it may run in that time or not, and
// not later. Args has a place for the limit.
func (p *pipeline) do(ctx context.Context, s *script, args []any) (any, error) {
	for again := true; ; again = false {
		sent := time.Now()
		limit, ok := ctx.Deadline()
		if !ok {
			limit = sent.Add(p.timeout)
		}
		args[deadlineArg] = p.clock.limit(limit)
		reply, err := p.run(ctx, &request{script: s, args: args})
		if err != nil {
			return nil, err
		}
		now, late := clockOf(reply)
		switch {
		case !late:
			if now > 0 {
				p.clock.read(now, sent)
			}
			return reply, nil
		case again && time.Now().Before(limit): // the node's clock was set; the script did nothing
			p.clock.set(now, sent)
			args = slices.Clone(args)
		default:
			return nil, errOverdue
		}
	}
}

// run sends a request, and waits for its reply.
func (p *pipeline) run(ctx context.Context, r *request) (any, error) {
	r.done = make(chan struct{})
	p.mu.Lock()
	if p.inFlight == 0 && len(p.queue) == 0 && p.last <= 1 {
		p.inFlight++
		p.mu.Unlock()
		// Alone, and without the way through another goroutine. Should the caller go away,
		// this waits for the reply nevertheless, until ctx' deadline at most.
		p.send(ctx, []*request{r})
		p.land()
		return r.reply, r.err
	}
	p.queue = append(p.queue, r)
	start := p.inFlight < maxInFlight
	if start {
		p.inFlight++
	}
	p.mu.Unlock()
	if start && !p.tasks.start(p.fly) {
		p.mu.Lock()
		p.inFlight--
		p.mu.Unlock()
		return nil, simba.ErrStopped
	}
	select {
	case <-r.done:
		return r.reply, r.err
	case <-ctx.Done():
		r.gone.Store(true)
		return nil, ctx.Err()
	case <-p.tasks.ctx.Done():
		return nil, simba.ErrStopped
	}
}

// land ends the flight of a lone request. What came meanwhile needs another.
func (p *pipeline) land() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 || !p.tasks.start(p.fly) {
		p.inFlight--
	}
}

// fly sends batches until nothing waits.
func (p *pipeline) fly() {
	var batch []*request
	for {
		if batch = p.take(batch[:0]); len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
		p.send(ctx, batch)
		cancel()
	}
}

// take moves the requests of the next batch. If there are none, the flight is over.
func (p *pipeline) take(batch []*request) []*request {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := 0
	for ; i < len(p.queue) && len(batch) < maxBatch; i++ {
		if r := p.queue[i]; !r.gone.Load() {
			batch = append(batch, r)
		}
	}
	n := copy(p.queue, p.queue[i:])
	clear(p.queue[n:])
	p.queue = p.queue[:n]
	if len(batch) == 0 {
		p.inFlight--
	} else {
		p.last = len(batch)
	}
	return batch
}

func (p *pipeline) send(ctx context.Context, batch []*request) {
	missing := p.exchange(ctx, batch, false)
	if len(missing) == 0 {
		return
	}
	// A script that Redis does not know has not run.
	for _, r := range p.exchange(ctx, missing, true) {
		close(r.done)
	}
}

// exchange sends a batch, and ends its requests but those whose script is missing. The scripts
// are loaded on the same connection, since another may lead to another node.
func (p *pipeline) exchange(ctx context.Context, batch []*request, load bool) (missing []*request) {
	cmds := make([]*redis.Cmd, len(batch))
	pipe := p.client.Pipeline()
	if load {
		queueScripts(ctx, pipe)
	}
	for i, r := range batch {
		cmds[i] = redis.NewCmd(ctx, r.args...)
		_ = pipe.Process(ctx, cmds[i]) // only queues it
	}
	sent := time.Now()
	_, err := pipe.Exec(ctx) // the first error; each command has its own, unless no connection could be made
	for i, r := range batch {
		r.reply, r.err = cmds[i].Result()
		if r.reply == nil && r.err == nil {
			r.err = err
		}
		p.judge(p.client, sent, r.err) // before anyone asks again
	}
	for _, r := range batch {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			if load && err != nil {
				r.err = err // why it was not loaded
			}
			missing = append(missing, r)
			continue
		}
		close(r.done)
	}
	return missing
}

func queueScripts(ctx context.Context, pipe redis.Pipeliner) {
	for _, s := range scripts {
		pipe.ScriptLoad(ctx, s.text)
	}
}

// load tells the node every script.
func (p *pipeline) load(ctx context.Context) error {
	pipe := p.client.Pipeline()
	queueScripts(ctx, pipe)
	_, err := pipe.Exec(ctx)
	return err
}
