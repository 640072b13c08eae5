package commands

import "testing"

func BenchmarkAdmit(b *testing.B) {
	s := newSite(b, Config{Users: newUsersFile(b, team...).open()})
	args := [][]byte{[]byte("SIMBA.GUARD"), []byte("billing:1"), []byte("billing:1"), []byte("1000")}
	e, err := s.x.table.find(args)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"default", "billing", "worker"} {
		b.Run(name, func(b *testing.B) {
			p := s.dial()
			p.expect("AUTH "+name+" pw", ok)
			conns := s.server.Conns()
			c := conns[len(conns)-1].State().(*client)
			if name == "worker" {
				args[2] = []byte("w-1")
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := c.admit(e, args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
