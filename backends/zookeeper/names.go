package zookeeper

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// The layout of the nodes, see the package comment. Curator's LeaderLatch on /simba/<mutex> creates
// and reads the same latch nodes. Only this engine uses the lease nodes.
const (
	mutexesDir = "/simba"
	leasesDir  = "/simba-leases"

	protected = "_c_"     // Curator's prefix of a name with a GUID
	latchMark = "-latch-" // between the GUID and the sequence number
	latchName = "latch-"  // Curator sorts by the text after its last occurrence
)

// encodeName turns a mutex's name into a path element. It encodes each byte of a forbidden character
// as %XX. Of the characters of valid names, ZooKeeper forbids "/", U+FFF0 and all later ones, and it
// forbids the names "." and ".." (PathUtils.validatePath). encodeName also encodes "%", so that no two
// names collide.
func encodeName(mutex string) string {
	if mutex == "." || mutex == ".." {
		return strings.ReplaceAll(mutex, ".", "%2E")
	}
	var b strings.Builder
	for _, r := range mutex {
		if r != '/' && r != '%' && r < 0xfff0 {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decodeName is the inverse of encodeName. ok is false for a name that encodeName never returns.
func decodeName(node string) (mutex string, ok bool) {
	mutex, err := url.PathUnescape(node)
	return mutex, err == nil && encodeName(mutex) == node
}

// decodeNames decodes the names of nodes, without those of no mutex.
func decodeNames(nodes []string) (mutexes []string) {
	for _, node := range nodes {
		if mutex, ok := decodeName(node); ok && simba.CheckMutex(mutex) == nil {
			mutexes = append(mutexes, mutex)
		}
	}
	return mutexes
}

// A guid identifies one latch node and its lease node. It has the form of Curator's GUIDs. It
// begins with a hash of the contender id (h), so that a server finds a contender's node by its
// name. The tag of the session that created the node (t) and random digits (r) follow:
//
//	hhhhhhhh-hhhh-tttt-tttt-rrrrrrrrrrrr
type guid string

const guidLen = 36

// A tag identifies a session in the guids of its nodes.
type tag string

func newTag() tag {
	var raw [4]byte
	rand.Read(raw[:]) // never fails, see crypto/rand
	return tag(fmt.Sprintf("%x-%x", raw[:2], raw[2:]))
}

// contenderMark returns the start of the guids of a contender's nodes.
func contenderMark(contender string) string {
	sum := sha256.Sum256([]byte(contender))
	return fmt.Sprintf("%x-%x-", sum[:4], sum[4:6])
}

func newGUID(contender string, t tag) guid {
	var raw [6]byte
	rand.Read(raw[:])
	return guid(fmt.Sprintf("%s%s-%x", contenderMark(contender), t, raw))
}

// tag returns the tag of the session that created the node, "" for a guid of another form.
func (g guid) tag() tag {
	if len(g) != guidLen {
		return ""
	}
	return tag(g[14:23])
}

// guidOf returns the guid in a child's name, "" if it has none.
func guidOf(child string) guid {
	rest, ok := strings.CutPrefix(child, protected)
	if !ok || len(rest) < guidLen+len(latchMark) || rest[guidLen:guidLen+len(latchMark)] != latchMark {
		return ""
	}
	return guid(rest[:guidLen])
}

// sortKey returns the part of a child's name that determines its order. The order is that of
// Curator (LockInternals.getSortedChildren, standardFixForSorting).
func sortKey(child string) string {
	if i := strings.LastIndex(child, latchName); i >= 0 {
		return child[i+len(latchName):]
	}
	return child
}

// lastNumber is the largest number of a latch node, a variable for tests. ZooKeeper's numbers become
// negative after 2^31 nodes, and their order would be lost.
var lastNumber = "2000000000"

// sortChildren orders the children of a mutex. The first is the owner's.
func sortChildren(children []string) {
	slices.SortFunc(children, func(a, b string) int { return cmp.Compare(sortKey(a), sortKey(b)) })
}

// paths builds the nodes' paths below a chroot.
type paths struct{ root string }

func (p paths) mutexes() string              { return p.root + mutexesDir }
func (p paths) leases() string               { return p.root + leasesDir }
func (p paths) mutex(m string) string        { return p.root + mutexesDir + "/" + encodeName(m) }
func (p paths) latch(m, child string) string { return p.mutex(m) + "/" + child }
func (p paths) newLatch(m string, g guid) string {
	return p.mutex(m) + "/" + protected + string(g) + latchMark
}
func (p paths) lease(g guid) string { return p.root + leasesDir + "/" + string(g) }

// marker returns the path of a session's marker. It is beside the lease nodes, where the user has
// the needed rights.
func (p paths) marker(t tag) string { return p.root + leasesDir + "/session-" + string(t) }

// inbox returns the path of the node below which other servers make requests to a session.
func (p paths) inbox(t tag) string { return p.root + leasesDir + "/inbox-" + string(t) }
