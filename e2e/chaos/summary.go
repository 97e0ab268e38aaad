package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary says how often each kind of fault came, how often it is known to have hit something, and
// what it explains. A kind that was planned and never came is there, too.
func (v *Verdict) Summary(h *History) string {
	b := &strings.Builder{}
	for _, t := range traits {
		n := came(h.Faults, t.kind)
		if a := cmp.Or(v.Excused[t.kind], &Account{}); n > 0 || h.Planned[t.kind] > 0 {
			fmt.Fprintf(b, "%3d × %s (%d had an effect): %d tasks lost, %d overlapping holds, idle for %.2f s at most\n",
				n, t.kind, a.Effective, a.Lost, a.Overlaps, a.Idle.Seconds())
		}
	}
	if n := len(v.Told); n > 0 {
		fmt.Fprintf(b, "%d contexts of revoked leases ended after %.1f s (median), %.1f s at most\n", n, v.Told[n/2].Seconds(), v.Told[n-1].Seconds())
	}
	outcomes := make(map[string]int)
	for _, t := range h.Tasks {
		for what, is := range map[string]bool{"whose enqueue had no answer": t.Unknown, "that an operator deleted": t.Deleted, "that an operator archived": t.Shelved} {
			if is {
				outcomes["tasks "+what]++
			}
		}
	}
	for range h.Ends {
		outcomes["ends by policy"]++
	}
	for _, r := range h.Runs {
		outcomes["runs: "+string(cmp.Or(r.Outcome, "killed"))]++
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		fmt.Fprintf(b, "%d %s\n", outcomes[outcome], outcome)
	}
	if came(h.Faults, OverrideLimit) > 0 {
		fmt.Fprintf(b, "%d overrides of limits that all servers heard of\n", v.Overridden)
	}
	if v.Held > 0 {
		fmt.Fprintf(b, "%d tasks failed and held their line\n", v.Held)
	}
	fmt.Fprintf(b, "tasks waited while a worker had room for %.0f s in all\n", v.Watched.Seconds())
	return b.String()
}
