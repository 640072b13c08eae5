// Package transcripts runs the commands that the documentation shows, and compares the output.
package transcripts

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The README and some guides show commands in several terminals, with their output. Each step is a
// block like
//
//	```console
//	# terminal 1
//	$ redis-cli -p 7379 SIMBA.CHECK job 1
//	(integer) 1
//	```
//
// The first line names the terminal; "# server" is that of the server. Each terminal is a shell,
// and all shells work in one copy of the source tree. Blocks run in the order of the page. "…"
// stands for any text, and a number of 16 digits for a token: see player.tokens. In the terminal of
// the server, the test skips lines that the page does not show.
//
// The last command of a block may have no output. Then the next block runs when that command has
// ended, or waits for a mutex. The output may follow at the start of a later block of the
// same terminal.
var (
	pageToken    = regexp.MustCompile(`\b\d{16}\b`)
	blockPattern = regexp.MustCompile("(?s)```console\n# ([^\n]+)\n(.*?)```")
	serverPort   = regexp.MustCompile(`addr=127\.0\.0\.1:(\d+)`)
)

const (
	treeRoot    = "../.."
	readmePort  = "7379"
	readmeRun   = "make run"
	serverName  = "server"
	anyText     = "…"
	commandMark = "$ "
)

// All pages use one copy of the source tree, since each copy needs a build.
func TestTranscriptsOfTheDocs(t *testing.T) {
	simbatest.NeedRedisTools(t)
	home := copyTree(t)
	for _, page := range transcripts(t) {
		t.Run(page, func(t *testing.T) {
			newPlayer(t, home).playAll(readPage(t, page))
		})
		// The next page needs a new data directory, without leases.
		simbatest.Must(t, os.RemoveAll(filepath.Join(home, "simba-data")))
	}
	t.Run("README.md on every engine", func(t *testing.T) { playedOnEveryStore(t, home) })
}

// transcripts returns the paths of the pages with a transcript, relative to the source tree.
func transcripts(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md"}
	guides, err := filepath.Glob(filepath.Join(treeRoot, "docs/*/*.md"))
	if err != nil || len(guides) == 0 {
		t.Fatalf("no pages in docs: %v", err)
	}
	for _, guide := range guides {
		page := strings.TrimPrefix(guide, treeRoot+"/")
		if strings.Contains(readPage(t, page), "```console\n") {
			pages = append(pages, page)
		}
	}
	return pages
}

// playedOnEveryStore runs the first part of the README with every engine that needs a store. Only
// tokens and the remaining times of leases may differ.
func playedOnEveryStore(t *testing.T, home string) {
	page, _, ok := strings.Cut(readPage(t, "README.md"), "\n## ")
	if !ok {
		t.Fatal("the page has no sections")
	}
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		p := newPlayer(t, home)
		p.run = "make run ENGINE=" + s.Engine + ` ARGS="'` + strings.Join(s.Flags(s.Store.Addr)[2:], "' '") + `'"`
		p.playAll(page)
		if len(p.tokens) < 2 { // learn checks that they grow
			t.Errorf("the page shows the tokens %v, want those of Alice and of Bob", p.tokens)
		}
	})
}

// readPage returns the text of a page. page is relative to the source tree.
func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(treeRoot, page))
	simbatest.Must(t, err)
	return string(text)
}

// copyTree returns a copy of the source tree, in which the README's commands can write.
func copyTree(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	entries, err := os.ReadDir(treeRoot)
	simbatest.Must(t, err)
	for _, e := range entries {
		name := e.Name()
		if name == "bin" || name == "simba-data" || strings.HasPrefix(name, ".") {
			continue
		}
		from, to := filepath.Join(treeRoot, name), filepath.Join(home, name)
		if e.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			err = copyFile(to, from)
		}
		simbatest.Must(t, err)
	}
	return home
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

type player struct {
	t         *testing.T
	home      string // working directory of every terminal
	port      string // of the server, in place of readmePort
	terminals map[string]*terminal
	tokens    map[string]string // by token of the page: the token that the server granted
	run       string            // starts the server, with an engine that needs a store; else ""
}

func newPlayer(t *testing.T, home string) *player {
	return &player{t: t, home: home, port: readmePort, terminals: make(map[string]*terminal), tokens: make(map[string]string)}
}

func (p *player) playAll(page string) {
	p.t.Helper()
	blocks := blockPattern.FindAllStringSubmatch(page, -1)
	if len(blocks) == 0 {
		p.t.Fatal("the page has no transcript")
	}
	for _, block := range blocks {
		p.play(block[1], strings.Split(strings.TrimSuffix(block[2], "\n"), "\n"))
	}
	for _, term := range p.terminals {
		if term.name != serverName {
			p.finish(term)
		}
	}
}

// window matches a line of a record whose number depends on the engine.
var window = regexp.MustCompile(`^(\d# "(?:ttl|transition)" => \(integer\) )\d+$`)

// pattern returns the pattern of output that a line of the page stands for. Its groups are the
// tokens that are new on the page.
func (p *player) pattern(line string) (pattern string, news []string) {
	if p.run != "" {
		line = window.ReplaceAllString(line, "${1}"+anyText)
	}
	parts := strings.Split(line, anyText)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return pageToken.ReplaceAllStringFunc(strings.Join(parts, ".*"), func(token string) string {
		if got, ok := p.tokens[token]; ok {
			return got
		}
		news = append(news, token)
		if p.run != "" {
			return `(\d+)`
		}
		return `(\d{16})`
	}), news
}

// learn notes that the server granted got, where the page has token. Both must grow alike.
func (p *player) learn(token, got string) {
	for other, before := range p.tokens {
		if (number(p.t, other) < number(p.t, token)) != (number(p.t, before) < number(p.t, got)) {
			p.t.Fatalf("the server granted %s where the page has %s, and %s where the page has %s", before, other, got, token)
		}
	}
	p.tokens[token] = got
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type terminal struct {
	name    string
	in      io.Writer
	out     chan string // lines of output
	running bool        // the last command has not ended
}

// endOfCommand is a line that the shell prints after each command.
const endOfCommand = "-- end of command --"

func (p *player) play(name string, lines []string) {
	term := p.terminals[name]
	if term == nil {
		term = p.open(name)
	}
	shown := false
	for _, line := range lines {
		command, ok := strings.CutPrefix(line, commandMark)
		if !ok {
			p.expect(term, line)
			shown = true
			continue
		}
		p.finish(term)
		if command == readmeRun && p.run != "" {
			command = p.run
		}
		command = strings.ReplaceAll(command, readmePort, p.port)
		command = pageToken.ReplaceAllStringFunc(command, func(token string) string { return p.tokens[token] })
		// The page shows client commands without a port, which SIMBA_URL has.
		command = "export SIMBA_URL=redis://127.0.0.1:" + p.port + "\n" + command
		if _, err := io.WriteString(term.in, "{ "+command+"\n} </dev/null\necho '"+endOfCommand+"'\n"); err != nil {
			p.t.Fatal(err)
		}
		term.running, shown = true, false
	}
	if !shown {
		p.endOrBlock(term)
	}
}

// endOrBlock waits until a command without output has ended, or a client waits for a mutex.
func (p *player) endOrBlock(term *terminal) {
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		select {
		case line := <-term.out:
			if line != endOfCommand {
				p.t.Fatalf("%s shows\n%s\nthe page has nothing", term.name, line)
			}
			term.running = false
			return
		default:
			if p.hasWaiter() {
				return
			}
		}
	}
	p.t.Fatalf("the command in %s prints nothing, does not end, and does not wait for a mutex", term.name)
}

var waiters = regexp.MustCompile(`waiters_(?:blocked|polling):[1-9]`)

// hasWaiter reports whether a client waits for a mutex.
func (p *player) hasWaiter() bool {
	c, err := redis.Dial("tcp", "127.0.0.1:"+p.port)
	if err != nil {
		return false
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO"))
	return err == nil && waiters.MatchString(info)
}

// expect compares output of the terminal with want, a line of the page.
func (p *player) expect(term *terminal, want string) {
	text, news := p.pattern(want)
	if term.name == serverName {
		text = strings.ReplaceAll(text, readmePort, `\d+`)
	} else {
		text = strings.ReplaceAll(text, readmePort, p.port)
	}
	pattern := regexp.MustCompile("^" + text + "$")
	for {
		got := p.read(term, want)
		groups := pattern.FindStringSubmatch(got)
		switch {
		case groups != nil:
			if match := serverPort.FindStringSubmatch(got); match != nil {
				p.port = match[1]
			}
			for i, token := range news {
				p.learn(token, groups[i+1])
			}
			return
		case term.name != serverName:
			p.t.Fatalf("%s shows\n%s\nthe page has\n%s", term.name, got, want)
		case got == endOfCommand:
			term.running = false
		}
	}
}

// finish reads the output of the terminal's command to its end.
func (p *player) finish(term *terminal) {
	for term.running {
		switch got := p.read(term, "nothing more"); {
		case got == endOfCommand:
			term.running = false
		case term.name != serverName:
			p.t.Fatalf("%s shows\n%s\nthe page has nothing more", term.name, got)
		}
	}
}

func (p *player) read(term *terminal, want string) string {
	select {
	case line, ok := <-term.out:
		if !ok {
			p.t.Fatalf("the shell of %s has ended; the page has\n%s", term.name, want)
		}
		return line
	case <-time.After(simbatest.Patience):
		p.t.Fatalf("%s shows nothing; the page has\n%s", term.name, want)
		return ""
	}
}

// open starts the shell of a terminal in its own process group, and kills the group when the test
// ends.
func (p *player) open(name string) *terminal {
	shell := exec.Command("bash", "--noprofile", "--norc")
	shell.Dir = p.home
	shell.Env = append(simbatest.Environ(), "SIMBA_ADDR=127.0.0.1:0", "PATH="+filepath.Join(p.home, "bin")+":"+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := shell.StdinPipe()
	simbatest.Must(p.t, err)
	out, err := shell.StdoutPipe()
	simbatest.Must(p.t, err)
	shell.Stderr = shell.Stdout
	simbatest.Must(p.t, shell.Start())
	term := &terminal{name: name, in: in, out: make(chan string, 1000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(term.out)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			term.out <- lines.Text()
		}
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		<-read
		_ = shell.Wait()
	})
	p.terminals[name] = term
	return term
}

func TestMain(m *testing.M) {
	os.Setenv("FAKETTY", "1") // makes redis-cli write as to a terminal
	os.Exit(simbatest.Main(m))
}
