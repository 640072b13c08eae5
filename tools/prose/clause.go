package main

import (
	"slices"
	"strings"
)

func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}

var (
	modals = set(`can could may might must will would shall should cannot do does did
		don't doesn't didn't can't won't couldn't wouldn't to not never and or but nor`)
	finite = set(`is are was were isn't aren't wasn't weren't has have had hasn't haven't hadn't do does did
		don't doesn't didn't can could may might must will would shall should cannot can't won't couldn't wouldn't
		adds allows appears arrives asks becomes begins belongs breaks brings calls carries causes changes
		closes comes connects costs counts decides deletes delays depends dies ends enters executes expires fails
		finds finishes follows forgets frees gets gives goes grants grows happens helps holds increments
		keeps knows lasts leads learns leaves lets lies limits looks loses makes matters means meets
		moves needs obtains opens overflows owns passes pays prevents proves publishes puts reads
		receives rejects releases remains removes renews repeats replies returns rises runs says sees sends
		serves sets shows sleeps speaks stands starts stays stops takes tells tries waits wakes wants wins
		works writes yields`)
	subordinating = set(`who whom whose what which that when if while because since until before after unless
		where whether why how whatever whoever whichever as than though although once`)
	determiners = set(`a an the it they he she we you nobody no each every all any this these those that its their our
		what whom which where who both one another`)
)

// hasClauseAsSubject reports whether the subject of a sentence is a clause or an infinitive: "What
// is left is deleted", "To lose a race is normal". It exempts questions.
//
// It pairs each subordinating word (what, that, if) with one finite verb. If a further finite verb
// follows, the clause is the subject of that verb. This is a heuristic: it takes some plural nouns
// for verbs, and misses rare verbs.
func hasClauseAsSubject(s sentence) bool {
	words := s.plain()
	if len(words) < 3 || s.isQuestion() {
		return false
	}
	infinitive, expected := false, 0
	switch words[0] {
	case "who", "whoever":
		// From its capital letter to its period, this is a sentence with the clause as its subject.
		// A phrase, such as a field's comment, may have only the verb of the clause.
		if strings.HasPrefix(s[0].text, "W") && s[len(s)-1].ends() {
			return true
		}
		expected = 1
	case "what", "whatever", "whichever", "whose", "whom", "whether":
		expected = 1
	case "that":
		switch {
		case words[1] == "which": // the next verb belongs to "which"
		case slices.Contains([]string{"a", "an", "the", "it", "they", "nobody", "no"}, words[1]):
			expected = 1
		default:
			return false
		}
	case "to":
		if determiners[words[1]] {
			return false
		}
		infinitive = true
	default:
		return false
	}
	previous := words[0]
	for _, w := range s[1:] {
		p := w.plain()
		switch {
		case subordinating[p]:
			expected++
		case finite[p] && !modals[previous]:
			if expected--; expected < 0 {
				return true
			}
		}
		if strings.ContainsAny(w.text, ":;") && !w.code || infinitive && strings.HasSuffix(w.text, ",") {
			return false
		}
		previous = p
	}
	return false
}
