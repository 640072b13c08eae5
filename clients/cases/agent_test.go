package cases

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// patience limits each wait for a reply or an event. It is shorter than the lease that each step has
// without an option.
const patience = simbatest.Patience

// line is a line that an agent writes: the reply to a request, or an event.
type line struct {
	ID    any            `json:"id"` // of the request; in an event, that of the contender
	OK    map[string]any `json:"ok"`
	Error string         `json:"error"` // of the reply; "" = the request was successful
	Text  string         `json:"text"`  // of the error
	Event string         `json:"event"`
	As    string         `json:"as"`
	At    int64          `json:"at"` // µs on the clock that all processes of the machine share

	fields map[string]any // of the event
}

// agent is the process of a client.
type agent struct {
	cmd  *exec.Cmd
	in   io.Writer
	link *stores.Link
	logs *output

	mu      sync.Mutex // guards what follows
	last    int        // id of the last request
	lines   []line     // that no step has received
	changed chan struct{}
	ended   bool
}

// output keeps what a process writes to stderr.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// startAgent starts the process of a client, which ends with the test. It may run on any goroutine.
func startAgent(t *testing.T, command []string, link *stores.Link) (*agent, error) {
	a := &agent{cmd: exec.Command(command[0], command[1:]...), link: link, logs: new(output), changed: make(chan struct{})}
	in, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.in, a.cmd.Stderr, a.cmd.Env = in, a.logs, simbatest.Environ()
	read := make(chan struct{})
	if err := simbatest.StartCmd(a.cmd, func() { <-read }); err != nil {
		return nil, err
	}
	go func() {
		defer close(read)
		a.read(out)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-read
		if t.Failed() {
			t.Logf("an agent logs:\n%s", a.logs)
		}
	})
	return a, nil
}

func (a *agent) read(out io.Reader) {
	in := bufio.NewScanner(out)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			fmt.Fprintf(a.logs, "not JSON: %q\n", in.Text())
			continue
		}
		_ = json.Unmarshal(in.Bytes(), &l.fields)
		a.change(func() { a.lines = append(a.lines, l) })
	}
	a.change(func() { a.ended = true })
}

func (a *agent) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

// ask sends a request and returns its reply.
func (a *agent) ask(request map[string]any) (line, error) {
	id, err := a.send(request)
	if err != nil {
		return line{}, err
	}
	return a.reply(id)
}

// send sends a request and returns its id.
func (a *agent) send(request map[string]any) (id int, _ error) {
	a.mu.Lock()
	a.last++
	id = a.last
	a.mu.Unlock()
	request["id"] = id
	text, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	if _, err := a.in.Write(append(text, '\n')); err != nil {
		return 0, fmt.Errorf("the agent does not read %s: %w", text, err)
	}
	return id, nil
}

// reply waits for the reply to a request.
func (a *agent) reply(id int) (line, error) {
	return a.receive("reply", func(l line) bool { return l.Event == "" && l.ID == float64(id) })
}

// receive waits for a line and takes it.
func (a *agent) receive(what string, is func(line) bool) (line, error) {
	late := time.After(patience)
	for {
		a.mu.Lock()
		i := slices.IndexFunc(a.lines, is)
		var l line
		if i >= 0 {
			l = a.lines[i]
			a.lines = slices.Delete(a.lines, i, i+1)
		}
		ended, changed := a.ended, a.changed
		a.mu.Unlock()
		switch {
		case i >= 0:
			return l, nil
		case ended:
			return line{}, fmt.Errorf("the agent ended before %s", what)
		}
		select {
		case <-changed:
		case <-late:
			return line{}, fmt.Errorf("no %s within %v", what, patience)
		}
	}
}

// has reports whether a line has arrived that no step has received.
func (a *agent) has(is func(line) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.lines, is)
}
