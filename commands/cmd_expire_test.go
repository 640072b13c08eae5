package commands

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestExpiryRepliesAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"EXPIRE none 10", "EXPIRE none x", "TTL none", "PTTL none", "EXPIRETIME none", "PEXPIRETIME none", "PERSIST none",
		"SET k v", "TTL k", "PTTL k", "EXPIRETIME k", "PEXPIRETIME k", "PERSIST k", "EXPIRE k x", "EXPIRE k 9223372036854775807", "EXPIRE k -9223372036854775808", "PEXPIRE k 9223372036854775807", "EXPIREAT k 9223372036854775807",
		"EXPIRE k 1000", "TTL k", "PEXPIRE k 4000000", "TTL k",
		"PEXPIREAT k 4000000000000", "PEXPIRETIME k", "EXPIRETIME k", "PEXPIRETIME k", "EXPIREAT k 4100000000", "PEXPIRETIME k",
		"PERSIST k", "PERSIST k", "TTL k", "EXPIRE k 0", "EXISTS k", "SET k v", "EXPIRE k -1", "EXISTS k", "SET k v", "EXPIREAT k 1", "GET k", "SET k v", "PEXPIREAT k -5", "GET k", "SET k v", "PEXPIREAT k -9223372036854775808", "GET k",
		"HSET h f v", "EXPIREAT h 4000000000", "EXPIRETIME h", "HGET h f", "PERSIST h", "TYPE h", "EXPIRE h 0", "TYPE h",
		"EXPIRE", "EXPIRE k", "TTL", "TTL a b", "PERSIST a b",
	})
}

func TestALockKeyExpiresWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEngineSite(t).dial()
		p.expect("SET a v PX 10000", ok)
		p.expect("SET b v", ok)
		p.expect("EXPIRE b 20", ":1\r\n")
		p.expect("SET c v EX 10", ok)
		p.expect("PERSIST c", ":1\r\n")
		time.Sleep(9501 * time.Millisecond)
		p.expect("PTTL a", ":499\r\n")
		p.expect("TTL a", ":0\r\n") // rounded to the nearest second, as in Redis
		p.expect("TTL b", ":10\r\n")
		p.expect("GET a", bulk("v"))
		time.Sleep(499 * time.Millisecond)
		p.expect("GET a", "$-1\r\n")
		p.expect("PTTL a", ":-2\r\n")
		p.expect("SET a w NX PX 10", ok)
		time.Sleep(24 * time.Hour)
		p.expect("EXISTS a b c", ":1\r\n")
		p.expect("TTL c", ":-1\r\n")
	})
}

func TestOptionsOfExpireAreRefused(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET k v", ok)
	for _, option := range []string{"NX", "XX", "GT", "LT"} {
		p.expect("PEXPIRE k 1 "+option, failed("ERR 'pexpire' serves no options: this is a lock server"))
	}
	p.expect("PEXPIRE k 1 nonsense", failed("ERR Unsupported option nonsense"))
	p.expect("TTL k", ":-1\r\n")
}

func TestAQueueNeverExpires(t *testing.T) {
	p := newEngineSite(t).dial()
	const q = "simba:{m}:contender"
	p.expect("SET m w1", ok)
	p.expect("TTL "+q, ":-2\r\n")
	p.expect("EXPIRE "+q+" 10", ":0\r\n")
	p.do("ZADD " + q + " 1 a 2 b")
	for _, command := range []string{"EXPIRE " + q + " 10", "PEXPIREAT " + q + " 4000000000000", "PERSIST " + q} {
		p.expect(command, ":0\r\n")
	}
	for _, command := range []string{"TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"} {
		p.expect(command+" "+q, ":-1\r\n")
	}
	p.expect("ZCARD "+q, ":2\r\n")
	p.expect("EXPIRE "+q+" -1", ":1\r\n") // acts as DEL, which keeps the waiters
	p.expect("ZCARD "+q, ":2\r\n")
}
