package commands

import (
	"fmt"
	"strings"
	"testing"
)

func TestGlobsAndChannelNamesAreBounded(t *testing.T) {
	p := newSite(t, Config{}).dial()
	for command, argument := range map[string]string{
		"SIMBA.SCAN 0 MATCH":   "MATCH",
		"SCAN 0 MATCH":         "MATCH",
		"PUBSUB CHANNELS":      "pattern",
		"PUBSUB SHARDCHANNELS": "pattern",
		"CONFIG GET databases": "parameter",
		"PSUBSCRIBE a":         "pattern",
		"SUBSCRIBE a":          "channel",
		"SSUBSCRIBE a":         "channel",
	} {
		p.expect(command+" "+strings.Repeat("a", 1025), failed("ERR "+argument+" has 1025 bytes, at most 1024 are allowed"))
	}
	p.expect("PUBLISH "+strings.Repeat("a", 1025)+" x", failed("ERR channel has 1025 bytes, at most 1024 are allowed"))
	p.expect("PUBSUB CHANNELS", "*0\r\n") // a refused SUBSCRIBE subscribes to nothing
	p.expect("PUBSUB NUMPAT", ":0\r\n")
	p.do("SUBSCRIBE " + strings.Repeat("a", 1024))
	p.do("PSUBSCRIBE " + strings.Repeat("a", 1024))
}

func TestSubscriptionsOfAConnectionAreBounded(t *testing.T) {
	p := newSite(t, Config{}).dial()
	const atATime = 1000
	for i := range maxSubscriptions / atATime {
		command := "SUBSCRIBE"
		for j := range atATime {
			command += fmt.Sprintf(" %d", i*atATime+j)
		}
		p.do(command)
		for range atATime - 1 {
			p.reply()
		}
	}
	const tooMany = "-ERR too many subscriptions: a connection may have at most 10000\r\n"
	for _, command := range []string{"SUBSCRIBE a", "PSUBSCRIBE a", "SSUBSCRIBE a"} {
		p.expect(command, tooMany)
	}
	p.expect("UNSUBSCRIBE 7", subscribed("unsubscribe", "7", maxSubscriptions-1))
	p.expect("SUBSCRIBE a b", tooMany)
	p.expect("PSUBSCRIBE a", subscribed("psubscribe", "a", maxSubscriptions))
}

func TestClientNamesAreBounded(t *testing.T) {
	p := newSite(t, Config{}).dial()
	longest, tooLong := strings.Repeat("a", 128), strings.Repeat("a", 129)
	for command, argument := range map[string]string{
		"CLIENT SETNAME":          "client name",
		"HELLO 2 SETNAME":         "client name",
		"CLIENT SETINFO LIB-NAME": "LIB-NAME",
		"CLIENT SETINFO lib-ver":  "LIB-VER",
	} {
		p.do(command + " " + longest)
		p.expect(command+" "+tooLong, failed("ERR "+argument+" has 129 bytes, at most 128 are allowed"))
	}
	f := fields(lines(p.do("CLIENT INFO"))[0])
	for _, field := range []string{"name", "lib-name", "lib-ver"} {
		if f[field] != longest {
			t.Errorf("CLIENT INFO shows %s=%s, want the longest name", field, f[field])
		}
	}
}
