// Package cases has what every client must do, in YAML files, and runs it against a real server.
//
// A case is a list of steps. Each step has an actor and what it does. The actors are:
//
//	a, b, c …   clients, each in a process of its own that is connected through a link of its own
//	server      the server, or the leader of a cluster, and requests of an administrator
//	net a       the link of client a
//	process a   the process of client a
//	wait        a pause
//	order       checks that the named replies and events came in this order
//
// A client's step is "lock report as x ttl=2s -> token=T": a request, its options, and after the
// arrow what its reply must have. With "begin" the step does not wait for the reply, which a later
// step "end x" receives. "event lost x" waits for an event. A name in capitals is a variable: the
// first step that has it sets it. A step with "{1..20}" in place of a number is 20 steps. The methods
// of world have all verbs.
//
// The process of a client is its agent, which reads requests and writes replies and events, each as
// a line of JSON.
package cases

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// testCase is one entry of a YAML file.
type testCase struct {
	Case    string              `yaml:"case"`
	Server  []string            `yaml:"server"`  // more flags of the server
	ACL     string              `yaml:"acl"`     // the server's ACL file
	User    string              `yaml:"user"`    // user:password of the clients
	TLS     string              `yaml:"tls"`     // the server has a certificate for this host
	Engine  string              `yaml:"engine"`  // of the server, with a store of its own; "" = embedded
	Cluster bool                `yaml:"cluster"` // the server is the leader of three, which clients find by Sentinel
	Only    []string            `yaml:"only"`    // the variants to which it applies; empty = all
	Steps   []map[string]string `yaml:"steps"`
}

func readCases(t *testing.T) (all []testCase) {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	simbatest.Must(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		simbatest.Must(t, err)
		var some []testCase
		if err := yaml.UnmarshalStrict(text, &some); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, some...)
	}
	return all
}

func TestEveryClientPassesTheCases(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		if v.version != "" && !simbatest.Long() {
			continue // make clients tests it
		}
		t.Run(strings.TrimSuffix(v.name+"-"+v.version, "-"), func(t *testing.T) {
			t.Parallel()
			command := v.agent(t, v.version)
			for _, c := range readCases(t) {
				if len(c.Only) != 0 && !slices.Contains(c.Only, v.name) {
					continue
				}
				t.Run(strings.ReplaceAll(c.Case, " ", "-"), func(t *testing.T) {
					t.Parallel()
					run(t, c, v, command)
				})
			}
		})
	}
}
