package history

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp"
)

// recorder is a Notices that records published messages.
type recorder struct {
	mu    sync.Mutex
	lines []string
	alone bool // nobody subscribes to any channel
}

func (p *recorder) Publish(channel, payload string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, channel+" "+payload)
	return 0
}

func (p *recorder) Subscribed(string) bool        { return false }
func (p *recorder) SubscribedPattern(string) bool { return false }
func (p *recorder) Any() bool                     { return !p.alone }

func (p *recorder) on(channel string) (payloads []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if payload, ok := strings.CutPrefix(line, channel+" "); ok {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

func acquired(m, owner string, token uint64) simba.Event {
	return simba.Event{Kind: simba.EventAcquired, Mutex: m, Owner: owner, Token: token}
}

func endOf(kind simba.EventKind, m, owner string, token uint64) simba.Event {
	return simba.Event{Kind: kind, Mutex: m, Owner: owner, Token: token}
}

func story(c *Log, m string) (lines []string) {
	for _, e := range c.Find(simba.HistoryRequest{Mutex: m, Count: 1000}) {
		lines = append(lines, fmt.Sprintf("%v %s %d", e.Kind, e.Owner, e.Token))
	}
	return lines
}

func TestTenureBoundariesAreRecordedOnce(t *testing.T) {
	p := &recorder{}
	c := NewLog(p, 0, false)
	if n := c.Record(acquired("m", "a", 1), acquired("m", "a", 1)); n != 1 {
		t.Errorf("Record of one acquired event twice: %d are new, want 1", n)
	}
	// Another server reports the same end as an expiry.
	if n := c.Record(endOf(simba.EventReleased, "m", "a", 1), endOf(simba.EventExpired, "m", "a", 1)); n != 1 {
		t.Errorf("Record of one end twice: %d are new, want 1", n)
	}
	c.Record(acquired("m", "a", 1)) // arrives once more, after the end
	c.Record(acquired("other", "a", 1))
	c.Record(acquired("m", "b", 2))
	if got, want := story(c, "m"), []string{"acquired a 1", "released a 1", "acquired b 2"}; !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
	if got := p.on(simba.EventChannel("m")); len(got) != 3 {
		t.Errorf("published %q, want 3 events", got)
	}
}

func TestQueuedAndLeftAreRecordedEachTime(t *testing.T) {
	c := NewLog(&recorder{}, 0, false)
	for range 2 {
		c.Record(simba.Event{Kind: simba.EventQueued, Mutex: "m", Owner: "a"}, simba.Event{Kind: simba.EventLeft, Mutex: "m", Owner: "a"})
	}
	if got := story(c, "m"); len(got) != 4 {
		t.Errorf("HISTORY: %q; want each queued and left event", got)
	}
}

func TestNoNoticeWithoutSubscribers(t *testing.T) {
	p := &recorder{alone: true}
	c := NewLog(p, 0, false)
	c.Record(acquired("m", "a", 1))
	if len(p.lines) != 0 || len(story(c, "m")) != 1 {
		t.Errorf("without subscribers: published %q, want none; history %q, want one event", p.lines, story(c, "m"))
	}
}

func TestLastIsTheLastBeginningOrEnd(t *testing.T) {
	c := NewLog(&recorder{}, 0, false)
	if _, ok := c.Last("m"); ok {
		t.Error("Last of a new mutex returned an event, want none")
	}
	c.Record(acquired("m", "a", 1), simba.Event{Kind: simba.EventQueued, Mutex: "m", Owner: "b"})
	if e, ok := c.Last("m"); !ok || e.Kind != simba.EventAcquired || e.Owner != "a" {
		t.Errorf("Last: %+v; want acquired by a", e)
	}
	c.Record(endOf(simba.EventExpired, "m", "a", 1))
	if e, _ := c.Last("m"); e.Kind != simba.EventExpired || e.Token != 1 {
		t.Errorf("Last: %+v; want expired with token 1", e)
	}
}

func TestEventLogKeepsItsLimit(t *testing.T) {
	const limit = 10
	c := NewLog(&recorder{}, limit, false)
	for i := range 5 * limit {
		m := fmt.Sprint("m", i)
		c.Record(acquired(m, "a", uint64(i+1)), endOf(simba.EventReleased, m, "a", uint64(i+1)))
	}
	if len(c.seen) > limit || len(c.last) > limit {
		t.Errorf("the log keeps %d boundaries and %d last events, want at most %d of each", len(c.seen), len(c.last), limit)
	}
	if got := story(c, "m0"); len(got) != 0 {
		t.Errorf("the history of the oldest mutex was not removed: %q", got)
	}
	last := fmt.Sprint("m", 5*limit-1)
	if got := story(c, last); len(got) != 2 {
		t.Errorf("the history of the newest mutex: %q; want 2 events", got)
	}
	// The log keeps the last event of a mutex when it removes the first one.
	c = NewLog(&recorder{}, limit, false)
	for i := range 3 * limit {
		c.Record(acquired("m", "a", uint64(i+1)))
	}
	if e, ok := c.Last("m"); !ok || e.Token != 3*limit {
		t.Errorf("Last: %+v, %v; want the newest token", e, ok)
	}
}

func TestConcurrentEventsAreNumberedAndPublishedInOrder(t *testing.T) {
	p := &recorder{}
	c := NewLog(p, 0, false)
	before := c.Seq()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 50 {
				c.Record(acquired("m", "a", uint64(i*50+k+1)))
			}
		})
	}
	all.Wait()
	events := c.Find(simba.HistoryRequest{Mutex: "m", Count: 1000})
	if len(events) != 400 || c.Seq() != before+400 {
		t.Fatalf("the history has %d events, and Seq has grown by %d; want 400 and 400", len(events), c.Seq()-before)
	}
	published := p.on(simba.EventChannel("m"))
	for i, e := range events {
		if e.Seq != before+simba.Seq(i+1) || published[i] != string(e.AppendJSON(nil)) {
			t.Fatalf("event %d is %+v, but published was %s", i, e, published[i])
		}
	}
}
