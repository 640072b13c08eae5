package resp

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// acquires is a pipeline of 16 usual commands.
func acquires() string {
	var b strings.Builder
	for i := range 16 {
		b.WriteString(bulk("SIMBA.ACQUIRE", fmt.Sprintf("m:%012d", i), "c", "60000"))
	}
	return b.String()
}

// BenchmarkPipelineOverTCP sends 16 commands and reads 16 replies of the usual length.
func BenchmarkPipelineOverTCP(b *testing.B) { benchmarkPipeline(b, nil, net.Dial) }

// BenchmarkPipelineOverTLS is BenchmarkPipelineOverTCP over TLS.
func BenchmarkPipelineOverTLS(b *testing.B) {
	who := certified(b)
	benchmarkPipeline(b, who.serverConfig(), func(network, addr string) (net.Conn, error) {
		return tls.Dial(network, addr, who.clientConfig())
	})
}

func benchmarkPipeline(b *testing.B, config *tls.Config, dial func(network, addr string) (net.Conn, error)) {
	reply := strings.Repeat("r", 100)
	s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"SIMBA.ACQUIRE": func(c *Conn, _ [][]byte) { c.Reply().Simple(reply) },
	}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.acceptLoop(ln, config) })
	nc, err := dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	command := []byte(acquires())
	replies := make([]byte, 16*(len("+\r\n")+len(reply)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(command); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, replies); err != nil {
			b.Fatal(err)
		}
	}
	nc.Close()
	s.Shutdown(b.Context())
	wg.Wait()
}

func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("%d subscribers", subscribers), func(b *testing.B) {
			s := NewServer(Config{Limits: Limits{PushQueue: 1 << 30}}, &script{commands: pubsub()})
			var wg sync.WaitGroup
			confirmed := len(confirmation("subscribe", "a", 1))
			for i := range subscribers + 1 {
				near, far := net.Pipe()
				defer near.Close()
				wg.Go(func() { s.ServeConn(far) })
				channel := "a"
				if i == subscribers {
					channel = "b" // a subscriber, but not of "a"
				}
				if _, err := near.Write([]byte("SUBSCRIBE " + channel + "\r\n")); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(near, make([]byte, confirmed)); err != nil {
					b.Fatal(err)
				}
				wg.Go(func() { io.Copy(io.Discard, near) })
			}
			b.ReportAllocs()
			for b.Loop() {
				if n := s.Broker().Publish("a", "acquired@@contender-1"); n != subscribers {
					b.Fatalf("Publish counts %d receivers, want %d", n, subscribers)
				}
			}
			b.StopTimer()
			for _, c := range s.Conns() {
				c.Close()
			}
			wg.Wait()
		})
	}
}
