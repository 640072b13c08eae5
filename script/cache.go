package script

import (
	"container/list"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// The limits of a cache. The cache evicts scripts of EVAL, and keeps loaded ones.
const (
	maxScripts     = 10_000
	maxScriptBytes = 64 << 20
)

const errCacheFull Error = "ERR too many scripts are loaded, SCRIPT FLUSH removes them"

// compiled is a compiled script. Its code is immutable, so any number of states can run it at once.
type compiled struct {
	sha   string
	proto *lua.FunctionProto
	bytes int
	eval  *list.Element // in cache.evals; nil = it was loaded
}

type cache struct {
	mu    sync.Mutex // protects all fields
	bySHA map[string]*compiled
	evals *list.List // scripts of EVAL, the last used one at the back
	bytes int        // of all scripts
	most  int        // limit of bytes
}

func newCache() *cache {
	return &cache{bySHA: map[string]*compiled{}, evals: list.New(), most: maxScriptBytes}
}

// limit sets the maximum size in bytes. It evicts scripts of EVAL only.
func (c *cache) limit(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = min(bytes, maxScriptBytes)
	for c.bytes > c.most && c.evals.Len() > 0 {
		c.forget(c.evals.Front())
	}
}

func shaOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// get returns the script with that SHA, or nil. The SHA may be in upper or lower case. If load is
// true, the script counts as loaded from now on.
func (c *cache) get(sha string, load bool) *compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.bySHA[strings.ToLower(sha)]
	switch {
	case found == nil || found.eval == nil:
	case load:
		c.evals.Remove(found.eval)
		found.eval = nil
	default:
		c.evals.MoveToBack(found.eval)
	}
	return found
}

// add adds a script. It returns errCacheFull if a loaded script does not fit.
func (c *cache) add(s *compiled, load bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.bySHA) >= maxScripts || c.bytes+s.bytes > c.most {
		oldest := c.evals.Front()
		if oldest == nil {
			if load {
				return errCacheFull
			}
			return nil // the script runs without being cached
		}
		c.forget(oldest)
	}
	if was := c.bySHA[s.sha]; was != nil { // two callers have compiled it at once
		if was.eval != nil {
			c.evals.Remove(was.eval)
		}
		load = load || was.eval == nil
		c.bytes -= was.bytes
	}
	c.bySHA[s.sha] = s
	c.bytes += s.bytes
	if !load {
		s.eval = c.evals.PushBack(s)
	}
	return nil
}

func (c *cache) forget(e *list.Element) {
	s := c.evals.Remove(e).(*compiled)
	delete(c.bySHA, s.sha)
	c.bytes -= s.bytes
}

func (c *cache) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.bySHA)
	c.evals.Init()
	c.bytes = 0
}
