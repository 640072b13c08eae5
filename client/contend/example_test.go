package contend_test

import (
	"context"
	"fmt"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
)

func ExampleContender() {
	c, done := connect()
	defer done()
	acquired := make(chan bool)
	k, err := contend.New(c, "leader", 0,
		func(ownership context.Context) { acquired <- client.Token(ownership) != 0 },
		func() { fmt.Println("released") })
	check(err)
	check(k.Start())
	fmt.Println("acquired with a token:", <-acquired, "owner:", k.IsOwner())
	check(k.Stop(context.Background()))
	fmt.Println("owner:", k.IsOwner())
	// Output:
	// acquired with a token: true owner: true
	// released
	// owner: false
}
