package script

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
)

// realRedis starts a redis-server, and connects to it.
func realRedis(t *testing.T) *wire {
	t.Helper()
	path := need.Program(t, "redis-server", "redis-server")
	dir := t.TempDir()
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to accept connections") {
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-drained
		cmd.Wait()
	})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{conn: conn, in: bufio.NewReader(conn)}
}

type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

// do sends a command and returns the bytes of its reply.
func (w *wire) do(t *testing.T, args ...string) string {
	t.Helper()
	fmt.Fprintf(w.conn, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(w.conn, "$%d\r\n%s\r\n", len(a), a)
	}
	var reply strings.Builder
	if err := w.copy(&reply); err != nil {
		t.Fatalf("cannot read the reply to %q: %v", args, err)
	}
	return reply.String()
}

func (w *wire) copy(to *strings.Builder) error {
	line, err := w.in.ReadString('\n')
	if err != nil {
		return err
	}
	to.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if n < 0 {
			return nil
		}
		_, err = io.CopyN(to, w.in, int64(n)+2)
		return err
	case '*':
	default:
		return nil
	}
	for range n {
		if err := w.copy(to); err != nil {
			return err
		}
	}
	return nil
}

// sameAsRedis are scripts whose replies must equal those of Redis.
const sameAsRedis = `
return 1
return -1.9
return 3.99
return 1e20
return -1e20
return 0/0
return 1/0
return 'a'
return 'a\0\r\nb'
return ''
return nil
return
return true
return false
return {}
return {1,2,nil,3}
return {1,'a',{2,{3,{}}},true,false,1.9}
return {nil}
return 1,2
return function() end
return {function() end, 1}
return {err='x'}
return {err='MY x'}
return {err=1}
return {err=''}
return {err='a\r\nb'}
return {ok='fine'}
return {ok='a\r\nb'}
return {ok=1}
return {ok='x', err='y'}
return setmetatable({},{__index=function() return 1 end})
return #KEYS
return #ARGV
KEYS[1]='a' return KEYS
KEYS={}
x=1
return x
_G.x=1
rawset(_G,'x',1)
return rawget(_G,'x')
string.x=1
redis.x=1
function f() end
setmetatable(_G,{})
setmetatable(string,{})
getmetatable('').__index=1
return getmetatable('').__index==string
return getmetatable(string)==nil
table.insert(string,1)
return print
return require
return getfenv
return newproxy
return os
return io
return debug
error('boom')
error('boom',0)
error('boom',2)
error({err='MY boom'})
error({err='boom',x=1})
error(nil)
error(1)
error(true)
error('a\nb')
local function f() error('x') end f()
local function f() error('x',2) end f()
return redis.error_reply('boom')
return redis.error_reply('-boom x')
return redis.status_reply('boom')
return {redis.error_reply('-boom'),redis.error_reply('boom x'),redis.error_reply(''),redis.error_reply('a b\r\n')}
return redis.error_reply(1)
return redis.error_reply()
return redis.error_reply('a','b')
return redis.error_reply('x').err
return redis.status_reply('a b').ok
return redis.status_reply(1)
return redis.status_reply()
return redis.call()
return redis.pcall()
return redis.pcall().err
return redis.call({})
return redis.call(nil)
return redis.call('echo',true)
return redis.pcall('echo',{})
return redis.call('nocmd')
return redis.pcall('nocmd').err
return type(redis.pcall('nocmd'))
local ok,e=pcall(redis.call,'nocmd') return e
local ok,e=pcall(redis.call,'nocmd') return type(e)
local ok,e=pcall(redis.call,'nocmd') error(e)
return redis.call('echo','x')
return {redis.call('echo',1),redis.call('echo',1.5),redis.call('echo',0.1),redis.call('echo',1e20),redis.call('echo',-1e17),redis.call('echo',1e16),redis.call('echo',2^53),redis.call('echo',10000000000000001),redis.call('echo',1/0),redis.call('echo',-1/0),redis.call('echo',0),redis.call('echo',-0),redis.call('echo',1e-5),redis.call('echo',100)}
return redis.log(1)
return redis.log('a','b')
return redis.log(9,'b')
return redis.log(redis.LOG_DEBUG,'b')
return redis.replicate_commands()
return pcall(error,'x')
return {pcall(error,'x')}
return {pcall(error,{err='x'})}
return {pcall(function() error('x') end)}
return {pcall(function() return 1,2 end)}
assert(false)
assert(false,'msg')
assert(nil)
return assert(1,2)
return {assert(1,2)}
return {tostring(1e15),tostring(1e14),tostring(123456),tostring(0.1),tostring(1/3),tostring(1e20),tostring(1/0),tostring(-1/0),tostring(-0.5),tostring(2^53)}
return {tostring(nil),tostring(true),tostring('a'),tostring(12)}
return 1 .. 2
return 1.5 .. 'a' .. 1e15
return 'a' .. 'b' .. 'c'
return {tonumber('0x10'),tonumber('1e2'),tonumber(' 10 '),tonumber('10',2),tonumber('zz',36),tonumber('ff',16)}
return {tostring(tonumber('')),tostring(tonumber('x')),tostring(tonumber('1x')),tostring(tonumber('0x')),tostring(tonumber('8',8)),tostring(tonumber('1_0')),tostring(tonumber('1 0'))}
return tonumber()
return tonumber({})
return {type(1),type('a'),type({}),type(nil),type(print==nil),type(type)}
return type()
return {select('#',1,nil,3),select(2,1,2,3)}
return {select(-1,1,2)}
return select(0)
return {unpack({1,2,3})}
return {unpack({1,2,3},2)}
return {unpack({1,2,3},2,5)}
return unpack({},1,1e8)
return {next({10})}
return {rawequal('a','a')}
return {{string.find('abc','b')},{string.find('abc','x')},{string.find('a.c','.',2,true)},{string.find('abc','',10)},{string.find('abc','',2)},{string.find('abc','b',-1)},{string.find('abc','b',-2)},{string.find('a.c','a','1')}}
return {{string.byte('abc',1,-1)},{string.byte('abc',0)},{string.byte('abc',2)},{string.byte('abc',10)}}
return string.char(65,66)
return string.char(256)
return string.char()
return {('abc'):sub(2),('abc'):sub(-2),('abc'):sub(2,2),('abc'):sub(0),('abc'):sub(3,2),('abc'):sub(-10,1),('abc'):sub(1,-2)}
return {('x'):rep(3),('x'):rep(0),('x'):rep(-1),('ab'):rep(2)}
return {('aBc'):upper(),('aBc'):lower(),('abc'):reverse(),('abc'):len(),#'abc'}
return ('é'):upper()
return string.rep()
return string.rep('a')
return string.rep('a','x')
return string.len({})
return string.format('%5d|%-5s|%05.2f|%x|%X|%g|%i|%%|%u|%e',3.7,'ab',3.14159,255,255,1e20,4,7,12345.678)
return {string.format('%s %s',1,2.5),string.format('%.3s|%5s|%-5s|','abcdef','é','é'),string.format('%+d|% d|%05d',1,1,-42),string.format('%.3f|%10.2f|%g|%g',1/3,1/3,100000,1000000),string.format('%g|%f|%5.1f',1/0,-1/0,1/0)}
return string.format('%y',3)
return string.format('%')
return string.format('%d')
return string.format('%100d',1)
return string.format('%d','x')
return string.format('%d','10')
return {table.concat({1,2,3},','),table.concat({1,2,3},',',2,3),table.concat({},',')}
return table.concat({1,{}},',')
local t={1,2} table.insert(t,3) table.insert(t,1,0) return t
local t={1,2,3} return {table.remove(t),table.remove(t,1),#t}
local t={} return {tostring(table.remove(t)),#t}
return table.getn({1,2})
return #5
return #nil
return #{1,2,3}
local s={} .. 'x'
local s='x' .. nil
return {5%3,-5%3,5.5%2,2^10,7/2}
return {math.floor(-1.5),math.ceil(1.2),math.abs(-1),math.max(1,5,3),math.min(4,2),math.sqrt(16),math.fmod(7,3)}
return {tostring(math.huge),tostring(math.pi)}
return {math.modf(3.7)}
return math.random(0)
return math.random(2,1)
return _VERSION
local t=setmetatable({},{__call=function(self,a) return a end}) return t(5)
local t=setmetatable({},{__concat=function(a,b) return 'cat' end}) return {t..'x','x'..t}
local t=setmetatable({},{__tostring=function() return 'me' end}) return tostring(t)
local t=setmetatable({},{__metatable='no'}) return {getmetatable(t)}
local t=setmetatable({},{__metatable='no'}) setmetatable(t,{})
return setmetatable('',{})
return setmetatable({},1)
return ipairs()
return pairs(nil)
local s=0 for i=1,10 do s=s+i end return s
local s=0 for i=10,1,-3 do s=s+i end return s
local t={} for i,v in ipairs({4,5,nil,6}) do t[#t+1]=v end return t
local i=0 repeat i=i+1 until i>5 return i
local i=0 while true do i=i+1 if i>5 then break end end return i
local function f(...) return select('#',...) end return f(nil,nil)
local t={} for k in pairs({a=1}) do t[#t+1]=k end return t
return ({...})[1]
return not nil
return nil == false
return 'a' < 'b'
return 1 == '1'
return '10' + 5
return -'2'
return 'a\065\10b'
return [[x]]
`

func TestScriptsReplyAsOnRedis(t *testing.T) {
	redis := realRedis(t)
	r := New(Config{})
	for source := range strings.SplitSeq(strings.TrimSpace(sameAsRedis), "\n") {
		want := redis.do(t, "EVAL", source, "0")
		if got := run(t, r, source); got != want {
			t.Errorf("script %s\n got %q\nwant %q", source, got, want)
		}
	}
}
