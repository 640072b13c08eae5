package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
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
	tasks           *proxy.Core
	clock           *proxy.Clock  // of the node
	backgroundLimit chan struct{} // see Backend.background

	mu       sync.Mutex // guards the fields below
	queue    []*request
	inFlight int // batches
}

// request is one run of a script. Its reply and err may be read only after done is closed.
type request struct {
	script *script
	args   []any // the command: EVALSHA and its arguments

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
		args[deadlineArg] = p.deadlineAtNode(deadline)
		reply, err := p.run(ctx, &request{script: s, args: args})
		if err != nil {
			return nil, err
		}
		now, late := clockOf(reply)
		if now > 0 {
			p.clock.Learn(now, sent, time.Now())
		}
		switch {
		case !late:
			return reply, nil
		case retry && time.Now().Before(deadline): // the node's clock was set forward
			args = slices.Clone(args)
		default:
			return nil, errOverdue
		}
	}
}

// noDeadline is the deadline of a script at a node whose clock is not known yet.
const noDeadline = "9007199254740992"

// deadlineAtNode returns what the node's clock will show at an instant of this server's clock. The
// result may be somewhat too early. If somebody sets the node's clock back, the results are too
// late until the next reply.
func (p *pipeline) deadlineAtNode(at time.Time) string {
	if ms, ok := p.clock.Earliest(at); ok {
		return strconv.FormatInt(ms, 10)
	}
	return noDeadline
}

func (p *pipeline) run(ctx context.Context, r *request) (any, error) {
	r.done = make(chan struct{})
	p.mu.Lock()
	if p.inFlight == 0 && len(p.queue) == 0 {
		// This goroutine sends the lone request, which saves two switches of goroutines. It waits for
		// the reply until ctx' deadline, even if ctx is cancelled.
		p.inFlight++
		p.mu.Unlock()
		p.send(ctx, []*request{r})
		p.mu.Lock()
		if len(p.queue) == 0 || !p.tasks.Go(p.sendBatches) {
			p.inFlight--
		}
		p.mu.Unlock()
		return r.reply, r.err
	}
	p.queue = append(p.queue, r)
	start := p.inFlight < maxInFlight
	if start {
		p.inFlight++
	}
	p.mu.Unlock()
	if start && !p.tasks.Go(p.sendBatches) {
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
	case <-p.tasks.Stopping.Done():
		return nil, simba.ErrStopped
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
	p.queue = slices.DeleteFunc(p.queue, func(r *request) bool { return r.abandoned.Load() })
	n := min(len(p.queue), maxBatch)
	batch = append(batch, p.queue[:n]...)
	p.queue = slices.Delete(p.queue, 0, n)
	if n == 0 {
		p.inFlight--
	}
	return batch
}

// send sends a batch and completes its requests. If the node lacks scripts, send repeats their
// requests by EVAL, which has the text of the script and loads it for later requests. A request
// does not rely on an EVAL before it, because the node does not load the script of an EVAL that it
// refuses, for example by MOVED.
func (p *pipeline) send(ctx context.Context, batch []*request) {
	missing := p.exchange(ctx, batch)
	for _, r := range missing {
		r.args[0], r.args[1] = "eval", r.script.text
	}
	if len(missing) > 0 {
		for _, r := range p.exchange(ctx, missing) {
			close(r.done)
		}
	}
}

// exchange sends a batch and completes its requests. If the node lacks the script of a request,
// exchange returns the request and does not complete it.
func (p *pipeline) exchange(ctx context.Context, batch []*request) (missing []*request) {
	cmds := make([]*redis.Cmd, len(batch))
	pipe := p.client.Pipeline()
	for i, r := range batch {
		cmds[i] = redis.NewCmd(ctx, r.args...)
		_ = pipe.Process(ctx, cmds[i]) // only queues it
	}
	// err is the first error. If no connection could be made, the commands have neither a reply nor
	// an error.
	_, err := pipe.Exec(ctx)
	for i, r := range batch {
		r.reply, r.err = cmds[i].Result()
		if r.reply == nil && r.err == nil {
			r.err = err
		}
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			missing = append(missing, r)
		} else {
			close(r.done)
		}
	}
	return missing
}
