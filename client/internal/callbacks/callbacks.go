// Package callbacks has a queue that calls functions one at a time.
package callbacks

import "sync"

// Queue calls functions one at a time, in order, on a goroutine. The goroutine ends when the Queue
// is empty. The zero value is ready to use. Safe for concurrent use.
type Queue struct {
	mu      sync.Mutex // guards what follows
	queue   []func()
	idle    chan struct{} // closed when all functions have returned; nil = none was added yet
	running bool
}

// Add adds f. The Queue calls it after all functions that were added before.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, f)
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		go q.run()
	}
}

func (q *Queue) run() {
	ended := false
	defer func() {
		if !ended { // a function has ended the goroutine (runtime.Goexit)
			go q.run()
		}
	}()
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.running, ended = false, true
			close(q.idle)
			q.mu.Unlock()
			return
		}
		f := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		f()
	}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Idle returns a channel that is closed when the queue is empty and all functions have returned.
func (q *Queue) Idle() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == nil {
		return closed
	}
	return q.idle
}
