package commands

import "strings"

// argument is an argument in the terms of COMMAND DOCS.
type argument struct {
	name     string
	kind     kind
	token    string // the word before the argument; a pureToken is only this word
	optional bool
	multiple bool
	args     []argument // the alternatives of a oneof, or the parts of a block
}

type kind string

const (
	str       kind = "string"
	key       kind = "key"
	pattern   kind = "pattern"
	pureToken kind = "pure-token"
	oneof     kind = "oneof"
	block     kind = "block"
)

// parseUsage reads the arguments of a command in the notation of Redis' documentation: [optional],
// <one | of | several>, name [name ...] for a repetition, and tokens in upper case.
func parseUsage(s string) []argument {
	for _, sign := range []string{"[", "]", "<", ">", "|"} {
		s = strings.ReplaceAll(s, sign, " "+sign+" ")
	}
	p := usageParser{words: strings.Fields(s)}
	args, _ := p.sequence()
	return args
}

type usageParser struct{ words []string } // what is left to read

func (p *usageParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *usageParser) next() string {
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// sequence reads arguments up to the end of the brackets or of the alternative. repeats reports that
// they end with "...", so they repeat the arguments before the brackets.
func (p *usageParser) sequence() (list []argument, repeats bool) {
	for {
		switch w := p.peek(); w {
		case "", "]", ">", "|":
			return list, false
		case "...":
			p.next()
			return list, true
		case "[", "<":
			p.next()
			in, repeats := p.alternatives()
			p.next() // the closing bracket
			if !repeats {
				in.optional = w == "["
				list = append(list, in)
				continue
			}
			n := max(1, len(in.args))
			repeated := join(list[len(list)-n:])
			repeated.multiple = true
			list = append(list[:len(list)-n:len(list)-n], repeated)
		default:
			p.next()
			if w != strings.ToUpper(w) {
				list = append(list, argument{name: w, kind: kindOf(w)})
				continue
			}
			rest, _ := p.sequence()
			a := argument{name: strings.ToLower(w), kind: pureToken}
			if len(rest) > 0 {
				a = join(rest)
			}
			a.token = w
			list = append(list, a)
		}
	}
}

func (p *usageParser) alternatives() (a argument, repeats bool) {
	list, repeats := p.sequence()
	a = join(list)
	if p.peek() != "|" {
		return a, repeats
	}
	a = argument{name: "option", kind: oneof, args: []argument{a}}
	for p.peek() == "|" {
		p.next()
		list, _ := p.sequence()
		a.args = append(a.args, join(list))
	}
	return a, false
}

// join makes one argument of several.
func join(list []argument) argument {
	if len(list) == 1 {
		return list[0]
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return argument{name: strings.Join(names, "_"), kind: block, args: list}
}

func kindOf(name string) kind {
	switch name {
	case "key", "mutex":
		return key
	case "pattern":
		return pattern
	}
	return str
}
