package worker_test

import (
	"context"
	"fmt"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/worker"
)

func ExampleWorker() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	w := worker.Worker{
		Client: c, Mutex: "jobs",
		StartWork: func(ownership context.Context) error {
			fmt.Println("subscribe to the queue, with a token:", client.Token(ownership) != 0)
			cancel() // a real program ends by a signal
			return nil
		},
		StopWork: func() error { fmt.Println("leave the queue"); return nil },
		Changed:  func(from, to worker.State) { fmt.Println(from, "to", to) },
	}
	fmt.Println(w.Run(ctx))
	// Output:
	// idle to acquiring
	// acquiring to working
	// subscribe to the queue, with a token: true
	// working to pausing
	// leave the queue
	// pausing to releasing
	// releasing to idle
	// <nil>
}
