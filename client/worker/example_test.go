package worker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/worker"
)

// newWorker returns a Worker that sends its states to a channel.
func newWorker(c *client.Client, states chan<- worker.State) *worker.Worker {
	w, err := worker.New(c, worker.Config{
		Mutex: "jobs", ID: "shop-1", TTL: 10 * time.Second, Transition: 2 * time.Second,
		StartWork: func(context.Context) error { return nil },
		StopWork:  func() error { return nil },
		Changed:   func(_, to worker.State) { states <- to },
	})
	check(err)
	return w
}

func ExampleWorker() {
	c, done := connect()
	defer done()
	states := make(chan worker.State, 100)
	w := newWorker(c, states)
	check(w.Start())
	fmt.Println(<-states, <-states)
	check(w.Stop(context.Background()))
	fmt.Println(<-states, <-states, <-states)
	// Output:
	// acquiring working
	// pausing releasing idle
}

func ExampleNew() {
	c, done := connect()
	defer done()
	_, err := worker.New(c, worker.Config{Mutex: "jobs", TTL: 10 * time.Second})
	fmt.Println(err)
	// Output: StartWork is nil
}

func ExampleConfig() {
	cfg := worker.Config{
		Mutex:      "jobs",
		TTL:        10 * time.Second,
		Transition: 2 * time.Second,
		StartWork:  func(context.Context) error { fmt.Println("subscribe to the queue"); return nil },
		StopWork:   func() error { fmt.Println("leave the queue"); return nil },
		Changed:    func(from, to worker.State) { fmt.Println(from, "to", to) },
	}
	cfg.Changed(worker.Acquiring, worker.Working)
	check(cfg.StartWork(context.Background()))
	check(cfg.StopWork())
	// Output:
	// acquiring to working
	// subscribe to the queue
	// leave the queue
}

func ExampleWorker_ID() {
	c, done := connect()
	defer done()
	fmt.Println(newWorker(c, nil).ID())
	// Output: shop-1
}

func ExampleWorker_State() {
	c, done := connect()
	defer done()
	fmt.Println(newWorker(c, nil).State())
	// Output: idle
}

func ExampleWorker_Start() {
	c, done := connect()
	defer done()
	w := newWorker(c, make(chan worker.State, 100))
	check(w.Start())
	fmt.Println(w.Start())
	check(w.Stop(context.Background()))
	// Output: start the contender shop-1 of jobs: already in use
}

func ExampleWorker_Stop() {
	c, done := connect()
	defer done()
	w := newWorker(c, make(chan worker.State, 100))
	check(w.Start())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(w.Stop(ctx), w.State())
	// Output: <nil> idle
}

func ExampleWorker_Resign() {
	c, done := connect()
	defer done()
	states := make(chan worker.State, 100)
	w := newWorker(c, states)
	check(w.Start())
	fmt.Println(<-states, <-states)
	w.Resign()
	fmt.Println(<-states, <-states) // and contends again
	check(w.Stop(context.Background()))
	// Output:
	// acquiring working
	// pausing waiting
}

func ExampleState() {
	var s worker.State
	fmt.Println(s == worker.Idle)
	// Output: true
}

func ExampleState_String() {
	fmt.Println(worker.Working)
	// Output: working
}

func ExampleWorker_Run() {
	c, done := connect()
	defer done()
	var w *worker.Worker
	w, err := worker.New(c, worker.Config{
		Mutex: "jobs",
		StartWork: func(context.Context) error {
			fmt.Println("work")
			w.Quit()
			return nil
		},
	})
	check(err)
	fmt.Println(w.Run(context.Background()))
	// Output:
	// work
	// <nil>
}
