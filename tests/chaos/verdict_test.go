package chaos

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/simba-resp/simba-resp/tests/tenures"
)

// checkTimeout limits porcupine for one history.
const checkTimeout = 30 * time.Second

// verdict is what the judges found in the histories of a window.
type verdict struct {
	rate            // the replies from the start of the fault until there were enough
	meanwhile  rate // the replies from the start of the fault until the recovery
	lost       int  // writes without a reply
	violations []string
	unknown    int // histories for which porcupine found no result in time
}

// judge checks the operations on one mutex, and each server's own history of it. If something
// breaks the rules, judge writes everything to a new folder.
func (r *rules) judge(mutex string, all []operation, histories [][]tenures.Event) (v verdict) {
	for _, o := range all {
		if o.unknown {
			v.lost++
		}
	}
	v.violations = r.twoOwners(all)
	for s, events := range histories {
		_, problems := tenures.InHistory(events, r.completeness())
		for _, problem := range problems {
			v.violations = append(v.violations, fmt.Sprintf("in the history of server %d %s", s, problem))
		}
	}
	result, info := r.check(all)
	switch result {
	case porcupine.Illegal:
		v.violations = append(v.violations, "no order of its operations keeps the rules")
	case porcupine.Unknown:
		v.unknown++
	}
	if len(v.violations) == 0 && v.unknown == 0 {
		return v
	}
	where := r.keep(mutex, all, histories, info)
	for i := range v.violations {
		v.violations[i] = fmt.Sprintf("%s: %s (%s)", mutex, v.violations[i], where)
	}
	return v
}

func (r *rules) completeness() tenures.Completeness {
	if r.partial {
		return tenures.Partial
	}
	return tenures.Complete
}

// keep writes the operations, the servers' histories and porcupine's picture to a new folder. It
// returns the folder's path.
func (r *rules) keep(mutex string, all []operation, histories [][]tenures.Event, info porcupine.LinearizationInfo) string {
	dir, err := os.MkdirTemp("", "simba-chaos-")
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %+v, %+v\n", mutex, *r, r.crash)
	slices.SortFunc(all, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	for _, o := range all {
		fmt.Fprintln(&text, o)
	}
	for _, partial := range info.PartialLinearizationsOperations() {
		if len(partial) == 0 {
			continue
		}
		longest := slices.MaxFunc(partial, func(a, b []porcupine.Operation) int { return cmp.Compare(len(a), len(b)) })
		fmt.Fprintf(&text, "\nthe longest order that keeps the rules has %d operations; the last of them:\n", len(longest))
		s := r.first
		for _, o := range longest[max(0, len(longest)-12):] {
			fmt.Fprintln(&text, operation{o.Input.(request), o.Output.(reply)})
		}
		for _, o := range longest {
			_, s = r.step(s, o.Input.(request), o.Output.(reply))
		}
		fmt.Fprintf(&text, "the state of the mutex after that order: %v\n", s)
	}
	for s, events := range histories {
		fmt.Fprintf(&text, "\nthe history of server %d:\n", s)
		for _, e := range events {
			fmt.Fprintf(&text, "%s %s %s %d %q\n", time.Unix(0, int64(e.At)).Format("05.000"), e.Kind, e.Owner, e.Token, e.Reason)
		}
	}
	err = os.WriteFile(filepath.Join(dir, "history.txt"), []byte(text.String()), 0o644)
	if err == nil {
		err = porcupine.VisualizePath(r.model(), info, filepath.Join(dir, "history.html"))
	}
	if err != nil {
		return err.Error()
	}
	return dir
}
