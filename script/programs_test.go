package script

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

var (
	programs = flag.Int("programs", usualPrograms, "how many random programs TestRandomProgramsAnswerAsOnRedis runs")
	// make test runs the same programs each time, so a failure is due to a change.
	programsSeed = flag.Uint64("seed", 1, "seed of the first program; each later program has the next larger seed; 0 = random")
)

const unending = "it does not end"

// comparison runs programs here and on Redis.
type comparison struct {
	t    *testing.T
	here *Runner
	host *programsHost
	real *wire
}

// replies returns the replies from here and from Redis, with the kind of the error instead of an
// error. A program that does not end here does not run on Redis.
func (c *comparison) replies(source string, patience time.Duration) (here, real string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var w resp.Writer
	if err := c.here.Run(ctx, Call{Source: source}, c.host, &w); err != nil {
		if ctx.Err() != nil {
			return unending, unending
		}
		w.Error(err.Error())
	}
	return errorKind(string(w.Bytes())), errorKind(c.real.do(c.t, "EVAL", source, "0"))
}

var (
	where       = regexp.MustCompile(`user_script:\d+: | script: [0-9a-f]{40}, on @user_script:\d+\.|^(-ERR Error compiling script).*`)
	errorKinds  = regexp.MustCompile(`arithmetic|perform|__unm|compare|call|index|concatenate|length|argument|overflow|Expected`)
	sameMeaning = map[string]string{"perform": "arithmetic", "__unm": "arithmetic"}
)

func errorKind(reply string) string {
	if !strings.HasPrefix(reply, "-") {
		return reply
	}
	reply = where.ReplaceAllString(reply, "$1")
	if found := errorKinds.FindString(reply); found != "" && !strings.Contains(reply, "command") {
		if other := sameMeaning[found]; other != "" {
			found = other
		}
		return "-" + found
	}
	return reply
}

func (c *comparison) differs(p []*node) bool {
	here, real := c.replies(source(p), time.Second/2)
	return here != real
}

// bounds matches lines without which a program might not end.
var bounds = regexp.MustCompile(`^w\d+ = w\d+ \+ 1$|^fuel = |^if n <= 0 `)

// reduce removes statements from a program as long as bad reports true for it.
func reduce(p []*node, bad func([]*node) bool) []*node {
	for again := true; again; {
		again = false
		for _, list := range lists(&p) {
			for i := 0; i < len(*list); {
				whole := *list
				if bounds.MatchString(whole[i].open) {
					i++
					continue
				}
				without := slices.Concat(whole[:i], whole[i+1:])
				inside := slices.Concat(whole[:i], whole[i].body, whole[i+1:])
				if *list = without; bad(p) {
					again = true
					continue
				}
				if *list = inside; len(whole[i].body) > 0 && bad(p) {
					again = true
					continue
				}
				*list = whole
				i++
			}
		}
	}
	return p
}

// lists returns all lists of statements in p, the outer ones first.
func lists(p *[]*node) []*[]*node {
	all := []*[]*node{p}
	for _, n := range *p {
		if len(n.body) > 0 {
			all = append(all, lists(&n.body)...)
		}
	}
	return all
}

// constructs are parts of programs. The test fails if programs rarely have one of them. The
// generator counts those without a pattern.
var constructs = map[string]*regexp.Regexp{
	"assignment of several": nil, "exchange of variables": nil, "assignment of a call's values": nil, "assignment of fewer values": nil,
	"assignment of more values": nil, "assignment to a parameter": nil, "assignment to a field": nil, "assignment to an element": nil,
	"declaration of several": nil, "declaration of a call's values": nil, "closure": nil, "closures of a loop": nil, "break": nil,
	"break behind a closure": nil, "varargs": nil, "for of numbers": nil, "for of numeric strings": nil, "for of an iterator": nil, "while": nil,
	"repeat": nil, "if": nil, "recursion": nil, "wrapper of a function": nil, "pcall": nil, "expression that may fail": nil,
	"table of an array": nil, "table of a map": nil, "metatable": nil, "method": nil, "reply of a value": nil,

	"varargs passed on":  regexp.MustCompile(`, \.\.\.\)`),
	"values of varargs":  regexp.MustCompile(`\(\.\.\.\)|\{\.\.\.\}|'#', \.\.\.`),
	"and, or":            regexp.MustCompile(`\) (and|or) `),
	"comparison":         regexp.MustCompile(` ([<>]=?|[~=]=) `),
	"arithmetic":         regexp.MustCompile(` [-+*/] `),
	"numeric string":     regexp.MustCompile(`[^.] [-+*/%] '|(10|7 |x1F|\d)'\)? [-+*/%] `),
	"modulo":             regexp.MustCompile(` % `),
	"power":              regexp.MustCompile(` \^ `),
	"minus":              regexp.MustCompile(`-(nz)?\(`),
	"length":             regexp.MustCompile(`#\(`),
	"math":               regexp.MustCompile(`math\.`),
	"math.pow":           regexp.MustCompile(`math\.pow\(`),
	"array of a command": regexp.MustCompile(`redis\.p?call\('mget'`),
	"tonumber":           regexp.MustCompile(`tonumber\(`),
	"tostring":           regexp.MustCompile(`tostring\(`),
	"concatenation":      regexp.MustCompile(` \.\. `),
	"string.sub":         regexp.MustCompile(`string\.sub\(`),
	"string.rep":         regexp.MustCompile(`string\.rep\(`),
	"string.format":      regexp.MustCompile(`string\.format\(`),
	"letters":            regexp.MustCompile(`string\.(upper|lower|reverse)\(`),
	"bytes of a string":  regexp.MustCompile(`string\.(find|byte|len)\(`),
	"table constructor":  regexp.MustCompile(`= \{|\(\{`),
	"command":            regexp.MustCompile(`redis\.p?call\(`),
}

func TestRandomProgramsAnswerAsOnRedis(t *testing.T) {
	redis := realRedis(t)
	c := &comparison{t: t, here: New(Config{}), host: &programsHost{keys: map[string]string{}}, real: redis}
	first := *programsSeed
	if first == 0 {
		first = 1 + rand.Uint64N(1e12)
	}
	t.Logf("to run these programs again: go test ./script -run RandomPrograms -programs %d -seed %d", *programs, first)
	made := map[string]int{}
	failed, different := 0, 0
	for i := range *programs {
		seed := first + uint64(i)
		g := newGenerator(seed)
		p := g.program()
		text := strings.TrimPrefix(source(p), prelude)
		for construct, seen := range constructs {
			if g.made[construct] > 0 || seen != nil && seen.MatchString(text) {
				made[construct]++
			}
		}
		here, real := c.replies(source(p), 30*time.Second)
		if strings.HasPrefix(real, "-") {
			failed++
		}
		if here == real && here != unending {
			continue
		}
		if different++; different > 10 {
			continue
		}
		if here == unending {
			p = reduce(p, func(p []*node) bool { here, _ := c.replies(source(p), time.Second/2); return here == unending })
			t.Errorf("the program of -programs 1 -seed %d does not end:\n%s", seed, strings.TrimPrefix(source(p), prelude))
			continue
		}
		p = reduce(p, c.differs)
		here, real = c.replies(source(p), time.Second)
		t.Errorf("the program of -programs 1 -seed %d replies otherwise than on Redis:\n%s\n got %.600q\nwant %.600q", seed, strings.TrimPrefix(source(p), prelude), here, real)
	}
	t.Logf("%d programs, %d of them fail on Redis, %d differ", *programs, failed, different)
	for _, construct := range slices.Sorted(maps.Keys(made)) {
		t.Logf("%8d have %s", made[construct], construct)
	}
	if failed > *programs*4/10 {
		t.Errorf("%d of %d programs fail on Redis, want at most 40 %%", failed, *programs)
	}
	for construct := range constructs {
		if *programs >= 1000 && made[construct] < *programs/100 {
			t.Errorf("the construct %s is in %d of %d programs, want at least 1 %%", construct, made[construct], *programs)
		}
	}
}
