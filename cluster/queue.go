package cluster

import "sync"

// queue is a list that one goroutine empties.
type queue[T any] struct {
	ready chan struct{} // has an element when the list has some

	mu   sync.Mutex // guards list
	list []T
}

func (q *queue[T]) init() { q.ready = make(chan struct{}, 1) }

func (q *queue[T]) put(x T) {
	q.mu.Lock()
	q.list = append(q.list, x)
	q.mu.Unlock()
	poke(q.ready)
}

// take returns the list, and empties it.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// wait waits until the list has elements, or quit is closed. Then it returns false.
func (q *queue[T]) wait(quit <-chan struct{}) bool {
	select {
	case <-q.ready:
		return true
	case <-quit:
		return false
	}
}

// poke puts an element into a channel that has room for one.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
