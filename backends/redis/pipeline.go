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
	maxBatch = 128 // requests
	// maxInFlight is how many batches may be in flight to one node. With only one, a lost
	// connection would delay all requests. With many, batches are small, which costs processor
	// time.
	maxInFlight = 2
)

// pipeline sends the requests of concurrent clients to one node in batches. A lone request is sent
// at once. Requests that arrive while maxInFlight batches are in flight wait, and form the next
// batch. Safe for concurrent use.
type pipeline struct {
	client          *redis.Client
	timeout         time.Duration
	tasks           *tasks
	clock           clock         // of the node
	backgroundLimit chan struct{} // see Backend.background
	// onResult is called after each request, with its error (nil = none) and the time when it was
	// sent.
	onResult func(client *redis.Client, sent time.Time, err error)

	mu            sync.Mutex // guards the fields below
	queue         []*request
	inFlight      int // batches
	lastBatchSize int // in requests
}

// request is one run of a script. Its reply and err may be read only after done is closed.
type request struct {
	args []any // the command: EVALSHA and its arguments

	abandoned atomic.Bool // the caller no longer waits, so a queued request must not be sent
	done      chan struct{}
	reply     any
	err       error
}

// errOverdue is returned when a script did nothing because it reached Redis after its deadline.
var errOverdue = errors.New("the request reached redis after its deadline")

// deadlineArg is the index of the script's deadline among the args of a request.
const deadlineArg = 3 + len(suffixes) + 4

// do runs a script, with ctx's deadline as the script's deadline. If ctx ends before the reply
// arrives, the script may have run or may still run until the deadline. Before the first reading of
// the node's clock, scripts have no deadline.
func (p *pipeline) do(ctx context.Context, s *script, args []any) (any, error) {
	for retry := true; ; retry = false {
		sent := time.Now()
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = sent.Add(p.timeout)
		}
		args[deadlineArg] = p.clock.atNode(deadline)
		reply, err := p.run(ctx, &request{args: args})
		if err != nil {
			return nil, err
		}
		now, late := clockOf(reply)
		switch {
		case !late:
			if now > 0 {
				p.clock.update(now, sent)
			}
			return reply, nil
		case retry && time.Now().Before(deadline): // the node's clock was set forward
			p.clock.replace(now, sent)
			args = slices.Clone(args)
		default:
			return nil, errOverdue
		}
	}
}

func (p *pipeline) run(ctx context.Context, r *request) (any, error) {
	r.done = make(chan struct{})
	p.mu.Lock()
	if p.inFlight == 0 && len(p.queue) == 0 && p.lastBatchSize <= 1 {
		p.inFlight++
		p.mu.Unlock()
		// This goroutine sends the lone request, and waits for the reply until ctx' deadline, even
		// if ctx is cancelled.
		p.send(ctx, []*request{r})
		p.finishLone()
		return r.reply, r.err
	}
	p.queue = append(p.queue, r)
	start := p.inFlight < maxInFlight
	if start {
		p.inFlight++
	}
	p.mu.Unlock()
	if start && !p.tasks.start(p.sendBatches) {
		p.mu.Lock()
		p.inFlight--
		p.mu.Unlock()
		return nil, simba.ErrStopped
	}
	select {
	case <-r.done:
		return r.reply, r.err
	case <-ctx.Done():
		r.abandoned.Store(true)
		return nil, ctx.Err()
	case <-p.tasks.ctx.Done():
		return nil, simba.ErrStopped
	}
}

// finishLone starts sending the requests that arrived while a lone request was in flight.
func (p *pipeline) finishLone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 || !p.tasks.start(p.sendBatches) {
		p.inFlight--
	}
}

func (p *pipeline) sendBatches() {
	var batch []*request
	for {
		if batch = p.nextBatch(batch[:0]); len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
		p.send(ctx, batch)
		cancel()
	}
}

// nextBatch appends the requests of the next batch. If there are none, nextBatch lowers inFlight,
// and the caller must stop.
func (p *pipeline) nextBatch(batch []*request) []*request {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := 0
	for ; i < len(p.queue) && len(batch) < maxBatch; i++ {
		if r := p.queue[i]; !r.abandoned.Load() {
			batch = append(batch, r)
		}
	}
	n := copy(p.queue, p.queue[i:])
	clear(p.queue[n:])
	p.queue = p.queue[:n]
	if len(batch) == 0 {
		p.inFlight--
	} else {
		p.lastBatchSize = len(batch)
	}
	return batch
}

// send sends a batch and completes its requests. If the node lacks a script, send loads the scripts
// and sends the requests of that script again.
func (p *pipeline) send(ctx context.Context, batch []*request) {
	missing := p.exchange(ctx, batch, false)
	if len(missing) == 0 {
		return
	}
	for _, r := range p.exchange(ctx, missing, true) {
		close(r.done)
	}
}

// exchange sends a batch and completes its requests. If the node lacks the script of a request,
// exchange returns the request and does not complete it. If load is set, exchange first loads the
// scripts on the same connection, since another connection may lead to another node.
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
	// err is the first error. If no connection could be made, the commands have neither a reply nor
	// an error.
	_, err := pipe.Exec(ctx)
	for i, r := range batch {
		r.reply, r.err = cmds[i].Result()
		if r.reply == nil && r.err == nil {
			r.err = err
		}
		p.onResult(p.client, sent, r.err) // before the caller can send another request
	}
	for _, r := range batch {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			if load && err != nil {
				r.err = err // the error of SCRIPT LOAD
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

func (p *pipeline) load(ctx context.Context) error {
	pipe := p.client.Pipeline()
	queueScripts(ctx, pipe)
	_, err := pipe.Exec(ctx)
	return err
}
